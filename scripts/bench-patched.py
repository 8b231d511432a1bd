#!/usr/bin/env python3
"""Predicts and measures what the patches of papers/patches gain. Run scripts/patched.sh first.

Each variant of a program is predicted for 2, 8 and 32 processors, with 32 threads. Then all
variants run under libc's locks, the default and `elided`, interleaved round by round. Without
hardware transactions, `elided` is omitted. An interrupted run continues where it ended.

    scripts/bench-patched.py --out DIR       predict and measure; DIR/patched.json has the results
    scripts/bench-patched.py --table FILE    print the tables of docs/evaluation/predictions.md"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import origins

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = ROOT / "target/patched"
UNCONVOY = os.environ.get("UNCONVOY", str(ROOT / "target/release/unconvoy"))
PROCESSORS = [2, 8, 32]
THREADS = [2, 8]
LOCKS = ["libc", "default", "elided"]
# Locks held for a smaller share of the run do not matter.
LEAST_SHARE = 0.02
LEVELDB = "leveldb_bench --num 20000 --workload"
# Title, source package, command.
PROGRAMS = [
    ("LevelDB, readrandom", "leveldb", f"{LEVELDB} readrandom"),
    ("LevelDB, readwhilewriting", "leveldb", f"{LEVELDB} readwhilewriting"),
    ("SQLite", "sqlite3", "sqlite_bench"),
]


def variants_of(source):
    """The variants that scripts/patched.sh builds, by their number of patches."""
    patches = sorted((ROOT / "papers/patches" / source).glob("*.patch"))
    return ["unpatched", *(patch.stem for patch in patches)]


def environment(source, number):
    return {**os.environ, "LD_LIBRARY_PATH": str(BUILT / f"{source}-{number}")}


def command_of(command, threads, seconds):
    program, *options = command.split()
    return [str(BUILT / program), *options, "--threads", str(threads), "--seconds", str(seconds)]


def transactions_commit():
    report = subprocess.run([UNCONVOY, "doctor"], capture_output=True, text=True).stdout
    return any(line.split()[:3] == ["yes", "elided", "locks"] for line in report.splitlines())


def predict(command, source, number):
    """What `unconvoy predict` says of each lock that matters, and of all locks together."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        processors = ",".join(map(str, PROCESSORS))
        options = ["--processors", processors, "--json", file.name, "--"]
        subprocess.run(
            [UNCONVOY, "predict", *options, *command_of(command, max(PROCESSORS), 1)],
            env=environment(source, number),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        report = json.load(open(file.name))
    locks = [
        {
            "name": lock["name"],
            "share": lock["share"],
            "times": lock["times"],
            "advice": [advice["sentence"] for advice in lock["advice"]],
            "independence": [row["byte"]["independence"] for row in lock["analysis"]["estimates"]],
            "density": [row["byte"]["density"] for row in lock["analysis"]["estimates"]],
        }
        for lock in report["locks"]
        if (lock.get("share") or 0) > LEAST_SHARE
    ]
    return {
        "seconds": report["run"]["seconds"],
        "held": report["held"],
        "locks": locks,
        "program": [row["program"] for row in report["projections"]],
    }


def measure(command, source, number, locks):
    """One run of each lock and thread count, in random order."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        options = ["--quiet", "--runs", "1", "--locks", ",".join(locks), "--json", file.name]
        options += ["--threads", ",".join(map(str, THREADS))]
        options += ["--metric", "^ops_per_sec ([0-9.]+)", "--timeout", "60", "--"]
        subprocess.run(
            [UNCONVOY, "compare", *options, *command_of(command, "{threads}", 0.7)],
            env=environment(source, number),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        record = json.load(open(file.name))
    rates = [[run["configuration"], run["threads"], run["metric"]] for run in record["runs"]]
    return record["context"], rates


def begun(path):
    """The record to fill. Another machine, commit or version would relabel what it holds."""
    here = {
        "commit": origins.commit(),
        "versions": {
            source: (BUILT / f"{source}.version").read_text().strip() for _, source, _ in PROGRAMS
        },
        **origins.machine(),
    }
    record = {"schema": 1, "predictions": {}, "runs": []}
    if path.exists():
        record = json.loads(path.read_text())
        if why := origins.difference(record, here):
            sys.exit(f"bench-patched: {path} does not fit: {why}; remove it to measure again")
    return {**record, **here}


def fill(path, rounds):
    record = begun(path)
    locks = [lock for lock in LOCKS if lock != "elided" or transactions_commit()]
    if "elided" not in locks:
        print("skipped: elided, because hardware transactions do not commit", file=sys.stderr)
    record["command"] = f"scripts/bench-patched.py --rounds {rounds}"
    cells = [
        (title, source, command, number, variant)
        for title, source, command in PROGRAMS
        for number, variant in enumerate(variants_of(source))
    ]
    for title, source, command, number, variant in cells:
        known = record["predictions"].setdefault(title, {})
        if variant not in known:
            known[variant] = predict(command, source, number)
            path.write_text(json.dumps(record, indent=1) + "\n")
    done = {(run["program"], run["variant"], run["round"]) for run in record["runs"]}
    for number_of_round in range(1, rounds + 1):
        for title, source, command, number, variant in cells:
            if (title, variant, number_of_round) in done:
                continue
            context, rates = measure(command, source, number, locks)
            record["date"] = context["date"]
            run = {"program": title, "variant": variant, "round": number_of_round, "rates": rates}
            record["runs"].append(run)
            path.write_text(json.dumps(record, indent=1) + "\n")


def rates_of(record, program, variant, lock, threads):
    """The rates of a cell by round."""
    return {
        run["round"]: rate
        for run in record["runs"]
        if (run["program"], run["variant"]) == (program, variant)
        for other, count, rate in run["rates"]
        if (other, count) == (lock, threads)
    }


def ratio(over, under):
    """The median of the rounds' ratios, with the smallest and the largest."""
    ratios = [over[number] / under[number] for number in sorted(over.keys() & under.keys())]
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def listed(values):
    return ", ".join(f"{value:.2f}" for value in values)


def rate(rates):
    return f"{statistics.median(rates.values()) / 1e6:.2f} M/s" if rates else "-"


def tables(record):
    rounds = len({run["round"] for run in record["runs"]})
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    yield (
        f"{record['cpu']}, {record['processors']} processors (virtual machine), "
        f"{record['kernel']}, {record['libc']}, Debian's {versions}; {record['date'][:10]}, commit "
        f"{record['commit']}, `{record['command']}`: medians of {rounds} rounds (smallest to "
        "largest)."
    )
    yield "\nPredictions with 32 threads, for 2, 8 and 32 processors:\n"
    yield "| program | variant | lock | held | threads that wait | independence | density |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for program, variants in record["predictions"].items():
        for variant, row in variants.items():
            for lock in row["locks"]:
                waiting = lock["times"]["waited"] / row["seconds"]
                yield (
                    f"| {program} | {variant} | `{lock['name']}` | {100 * lock['share']:.0f} % | "
                    f"{waiting:.0f} | {listed(lock['independence'])} | {listed(lock['density'])} |"
                )
    yield (
        "\nGain of transactions, predicted from the time that all locks are held, and measured as "
        "`elided` over the default:\n"
    )
    counts = " | ".join(f"measured, {threads} threads" for threads in THREADS)
    predicted = " | ".join(f"predicted, {count}" for count in PROCESSORS)
    yield f"| program | variant | {predicted} | {counts} |"
    yield "| --- " * (5 + len(THREADS)) + "|"
    for program, variants in record["predictions"].items():
        for variant, row in variants.items():
            cells = [f"{value:.2f}" for value in row["program"]]
            for threads in THREADS:
                elided, default = (
                    rates_of(record, program, variant, lock, threads)
                    for lock in ["elided", "default"]
                )
                cells.append(ratio(elided, default))
            yield f"| {program} | {variant} | {' | '.join(cells)} |"
    yield "\nGain of the patches over the unpatched program, under the same lock:\n"
    yield "| program | variant | threads | " + " | ".join(LOCKS) + " |"
    yield "| --- " * (3 + len(LOCKS)) + "|"
    for program, variants in record["predictions"].items():
        for variant in variants:
            for threads in THREADS:
                cells = []
                for lock in LOCKS:
                    rates = rates_of(record, program, variant, lock, threads)
                    before = rates_of(record, program, "unpatched", lock, threads)
                    same = variant == "unpatched"
                    cells.append(rate(rates) if same else ratio(rates, before))
                yield f"| {program} | {variant} | {threads} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if not (args.out or args.table):
        parser.error("give --out or --table")
    if args.out:
        if not all((BUILT / f"{source}.version").exists() for _, source, _ in PROGRAMS):
            parser.error("nothing built in target/patched: run scripts/patched.sh first")
        args.out.mkdir(parents=True, exist_ok=True)
        fill(args.out / "patched.json", args.rounds)
    print("\n".join(tables(json.loads((args.table or args.out / "patched.json").read_text()))))


if __name__ == "__main__":
    main()
