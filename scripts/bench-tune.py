#!/usr/bin/env python3
"""Compares what `unconvoy tune` finds with the best of twelve configurations.

    scripts/bench-tune.py [OPTIONS] [NAME[@THREADS]...]   measure cells, by default all
    scripts/bench-tune.py --table RECORD.json...          print the table of records

NAME is a program in scripts/tune-programs.toml; a cell is a program at 2 or 8 threads. Run `make
build` first, and install the packages in scripts/packages-programs.txt. The machine must be quiet:
all cells take hours. An interrupted run continues, because OUT/NAME-THREADS.json keeps each
finished step. Paths are relative to the repository's root.

    oracle   the twelve configurations in interleaved runs
    tune     `unconvoy tune`, within its budget
    fresh    libc, the default, the oracle's best three and tune's strategy, in new interleaved runs

To publish: scripts/bench-tune.py --out docs/records/tune
            scripts/bench-tune.py --table docs/records/tune/*.json |
                scripts/write-block.py docs/evaluation/tune.md table
"""

import argparse
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNCONVOY = os.environ.get("UNCONVOY", "target/release/unconvoy")
PROGRAMS = tomllib.loads((ROOT / "scripts/tune-programs.toml").read_text())
THREADS = (2, 8)
METRIC = "^(?:rate|ops_per_sec|pixels_per_sec) ([0-9.e+]+)"
DATA = ".bench-tune/data"
# Seconds after which a run has failed: under some locks, waiters take all processor time.
LIMIT_S = 20
STEPS = ("oracle", "tune", "fresh")
# The best pairs of docs/evaluation/grids.md, and one of each other kind.
CONFIGURATIONS = (
    "libc,default,loiter+park,loiter+yield,loiter+adaptive,clh+yield,tpmcs+control,tas+yield,"
    "ttas+control,futex+none,default+confine"
).split(",")
# The goals of the cells.
ORACLE, BASELINE, LARGE = 0.97, 0.98, 1.3


def has_transactions():
    return " rtm " in pathlib.Path("/proc/cpuinfo").read_text()


def twelve():
    """The names of the configurations; the last depends on the machine."""
    return [*CONFIGURATIONS, "elided" if has_transactions() else "futex+park"]


def measure(path, words):
    """Runs a subcommand of unconvoy that writes `path` as JSON, and returns its record and the exit
    status."""
    command = [UNCONVOY, *words]
    print("+", shlex.join(command), file=sys.stderr, flush=True)
    start = time.monotonic()
    status = subprocess.run(command).returncode
    took_s = time.monotonic() - start
    if not path.exists():
        sys.exit(f"bench-tune: {command[1]} ended with status {status}; run the command above")
    text = path.read_text().replace(f"{ROOT}/", "")
    path.unlink()
    return {**json.loads(text), "commit": commit(), "took_s": took_s}, status


def commit():
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()


class Cell:
    """A program at a number of threads, and its record."""

    def __init__(self, name, threads, options):
        program = PROGRAMS[name]
        self.options, self.threads = options, threads
        self.base = options.out / f"{name}-{threads}"
        self.path = self.base.with_suffix(".json")
        self.strategy = self.base.with_suffix(".toml")
        program = {key: str(value).replace("{data}", DATA) for key, value in program.items()}
        self.program = ["--", *shlex.split(program["run"])]
        self.preparation = shlex.split(program.get("prepare", ""))
        self.record = {"name": name, "threads": threads, "real": "real" in program}
        if self.path.exists():
            self.record = json.loads(self.path.read_text())

    def step(self, step):
        if step in self.record:
            return
        if self.preparation:
            subprocess.run(self.preparation, check=True, stdout=subprocess.DEVNULL)
        print(f"{self.record['name']}@{self.threads}: {step}", file=sys.stderr)
        self.record[step] = getattr(self, step)()
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.record, separators=(",", ":")) + "\n")
        new.rename(self.path)

    def compare(self, locks, runs):
        """Compares `locks`, without those under which the program fails or takes too long."""
        file = self.base.with_suffix(".compare")
        options = ["--quiet", "--runs", str(runs), "--timeout", str(LIMIT_S)]
        options += ["--metric-name", "rate", "--locks"]
        failed = []
        while True:
            left = [name for name in locks if name not in failed]
            words = ["compare", *options, ",".join(left)]
            record, status = measure(file, [*words, *self.common(file)])
            if status == 0:
                return {**record, "failed": failed}
            culprit = (record["ended_by"] or "").partition(",")[0]
            if status != 1 or culprit not in left[2:]:
                sys.exit(f"bench-tune: compare ended with status {status}: {record['ended_by']}")
            failed.append(culprit)

    def common(self, file):
        """The last arguments of `compare` and `tune`."""
        threads = ["--threads", str(self.threads), "--metric", METRIC]
        return [*threads, "--json", str(file), *self.program]

    def oracle(self):
        record = self.compare(twelve(), self.options.runs)
        del record["runs"]
        return record

    def tune(self):
        file = self.base.with_suffix(".tune")
        words = ["tune", "--budget", self.options.budget, "--output", str(self.strategy)]
        record, status = measure(file, [*words, *self.common(file)])
        # 3: the metric varies too much to decide; the likeliest strategy counts.
        if status not in (0, 3):
            sys.exit(f"bench-tune: tune ended with status {status}: {record['ended_by']}")
        return {**record, "status": status}

    def fresh(self):
        medians = medians_of(self.record["oracle"])
        best = sorted(medians, key=medians.get, reverse=True)[:3]
        locks = list(dict.fromkeys(["libc", "default", *best]))
        if self.strategy.exists():
            locks.append(str(self.strategy))
        return self.compare(locks, self.options.fresh)


def rates_of(record):
    """The rates of a comparison's configurations, in the order of the rounds."""
    rates = {}
    for run in sorted(record["runs"], key=lambda run: run["round"]):
        rates.setdefault(run["configuration"], []).append(run["metric"])
    return rates


def medians_of(record):
    return {row["configuration"]: row["metric"]["median"] for row in record["summary"]}


def ratio(rates, over, under):
    """The median of the rounds' ratios, and order statistics around it that enclose the true median
    with a probability of at least 95 %, if there are six rounds."""
    ratios = sorted(above / below for above, below in zip(rates[over], rates[under]))
    count, low = len(ratios), 0
    while sum(math.comb(count, under) for under in range(low + 2)) <= 0.025 * 2**count:
        low += 1
    return statistics.median(ratios), ratios[low], ratios[-1 - low]


class Row:
    """The results of a cell whose three steps are done."""

    def __init__(self, record):
        self.record, self.tune = record, record["tune"]
        rates = rates_of(record["fresh"])
        named = [name for name in rates if not name.endswith(".toml")]
        medians = medians_of(record["fresh"])
        # Without a strategy the user keeps the program as it is, under libc.
        self.found = next((name for name in rates if name.endswith(".toml")), "libc")
        self.best = max(named, key=medians.get)
        self.against = {
            name: ratio(rates, self.found, base)
            for name, base in [("best", self.best), ("default", "default"), ("libc", "libc")]
        }
        self.gain_of_best = ratio(rates, self.best, "libc")

    def meets_oracle(self):
        return self.against["best"][0] >= ORACLE

    def meets_baselines(self):
        return min(self.against["default"][0], self.against["libc"][0]) >= BASELINE

    def cells(self):
        name = self.record["name"] + ("" if self.record["real"] else " *")
        yield from (name, str(self.record["threads"]), self.best)
        yield shown(self.gain_of_best)
        yield from map(shown, self.against.values())
        yield f"{self.tune['took_s']:.0f} s"
        yield "yes" if self.meets_oracle() and self.meets_baselines() else "**no**"
        yield self.tune["sentence"]


def shown(triple):
    value, low, high = triple
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def list_of(rows):
    return ", ".join(f"{row.record['name']} at {row.record['threads']}" for row in rows) or "none"


def table(paths):
    """Prints the block `table` of docs/evaluation/tune.md."""
    records = [json.loads(pathlib.Path(path).read_text()) for path in paths]
    records = [record for record in records if all(step in record for step in STEPS)]
    if not records:
        sys.exit("bench-tune: no record has all steps; measure cells first")
    order = list(PROGRAMS)
    records.sort(key=lambda record: (order.index(record["name"]), record["threads"]))
    rows = [Row(record) for record in records]
    contexts = [record["fresh"]["context"] for record in records]
    context, dates = contexts[0], sorted(context["date"] for context in contexts)
    transactions = "with" if "elided" in medians_of(records[0]["oracle"]) else "without"
    commits = ", ".join(sorted({record["tune"]["commit"] for record in records}))
    print(
        f"{context['cpu']}, {context['processors']} processors {transactions} hardware "
        f"transactions, {context['kernel']}, {context['libc']}, unconvoy {context['unconvoy']} "
        f"({commits});\n{dates[0]} to {dates[-1]}.\n"
    )
    missed = [row for row in rows if not row.meets_oracle()]
    below = [row for row in rows if not row.meets_baselines()]
    large = [row for row in rows if row.record["real"] and row.against["libc"][0] >= LARGE]
    print("| goal | result | cells |\n| --- | --- | --- |")
    share = 100 * (1 - len(missed) / len(rows))
    print(
        f"| at least {ORACLE} of the best configuration, in 90 % of the cells "
        f"| {len(rows) - len(missed)} of {len(rows)} ({share:.0f} %) | below: {list_of(missed)} |"
    )
    print(
        f"| never below {BASELINE} of the default or of libc | {len(rows) - len(below)} of "
        f"{len(rows)} | below: {list_of(below)} |"
    )
    print(f"| at least {LARGE} times libc in 5 real cells | {len(large)} | {list_of(large)} |\n")
    heads = ["program", "threads", "best", "best / libc", "tuned / best", "tuned / default"]
    heads += ["tuned / libc", "time", "goals", "sentence"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row.cells())} |")


def cells(names, options):
    """The cells that the arguments name."""
    for name in names or PROGRAMS:
        program, _, threads = name.partition("@")
        if program not in PROGRAMS or threads not in ("", *map(str, THREADS)):
            sys.exit(f"bench-tune: {name}: no such cell; the programs are {', '.join(PROGRAMS)}")
        for count in [int(threads)] if threads else THREADS:
            yield Cell(program, count, options)


def main():
    usage, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(".bench-tune"))
    parser.add_argument("--budget", default="5m", help="tune's budget [default: 5m]")
    parser.add_argument("--runs", type=int, default=3, help="runs of the oracle [default: 3]")
    parser.add_argument("--fresh", type=int, default=9, help="fresh runs [default: 9]")
    parser.add_argument("--step", choices=STEPS, action="append", help="only this step")
    parser.add_argument("--table", action="store_true", help="print a table of records")
    parser.add_argument("names", nargs="*", metavar="NAME[@THREADS] or RECORD.json")
    options = parser.parse_args()
    # All names are relative to the root, so that records hold no other path.
    os.chdir(ROOT)
    if options.table:
        return table(options.names)
    for directory in (pathlib.Path(DATA), options.out):
        directory.mkdir(parents=True, exist_ok=True)
    # The scripts of the programs keep their data here.
    os.environ["PROGRAMS_CACHE"] = str(ROOT / DATA)
    for cell in cells(options.names, options):
        for step in options.step or STEPS:
            cell.step(step)


if __name__ == "__main__":
    main()
