#!/usr/bin/env python3
"""Compares what `unconvoy tune` finds with the best of twelve configurations.

    scripts/bench-tune.py [OPTIONS] [NAME[@THREADS]...]   measure cells, by default all

NAME is a program in scripts/tune-programs.toml; a cell is a program at 2 or 8 threads. Run `make
build` first, and install the packages in scripts/packages-programs.txt. The machine must be quiet:
all cells take hours. An interrupted run continues, because OUT/NAME-THREADS.json keeps each
finished step. Paths are relative to the repository's root.

    oracle   the twelve configurations in interleaved runs
    tune     `unconvoy tune`, within its budget
    fresh    libc, the default, the oracle's best three and tune's strategy, in new interleaved runs
    advice   a profile, and libc against the first remedy of its advice

To publish, on a machine with hardware transactions:

    scripts/bench-tune.py --out docs/records/tune
    scripts/tune-table.py docs/records/tune/*.json |
        scripts/write-block.py docs/evaluation/tune.md table

On others: docs/records/tune-without-rtm, and the block `without`.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import tomllib

import origins

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNCONVOY = os.environ.get("UNCONVOY", "target/release/unconvoy")
PROGRAMS = tomllib.loads((ROOT / "scripts/tune-programs.toml").read_text())
THREADS = (2, 8)
METRIC = "^(?:rate|ops_per_sec|pixels_per_sec) ([0-9.e+]+)"
DATA = ".bench-tune/data"
# Seconds after which a run has failed: under some locks, waiters take all processor time.
LIMIT_S = 20
STEPS = ("oracle", "tune", "fresh", "advice")
# The best pairs of docs/evaluation/grids.md, and one of each other kind.
CONFIGURATIONS = (
    "libc,default,loiter+park,loiter+yield,loiter+adaptive,clh+yield,tpmcs+control,tas+yield,"
    "ttas+control,futex+none,default+confine"
).split(",")


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
    return {**json.loads(text), "commit": origins.commit(), "took_s": took_s}, status


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
            self.require_same_machine()

    def require_same_machine(self):
        """Rates of two machines do not compare. Each step keeps its commit."""
        for step in STEPS:
            known = self.record.get(step, {}).get("context", {})
            if why := origins.difference(known, origins.machine()):
                sys.exit(
                    f"bench-tune: {self.path} is of another machine: {why}; remove the file to "
                    "measure its cell again"
                )

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
        # A search that finds nothing leaves the file of an earlier one as it is.
        self.strategy.unlink(missing_ok=True)
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

    def advice(self):
        file = self.base.with_suffix(".profile")
        program = [word.replace("{threads}", str(self.threads)) for word in self.program]
        report, status = measure(file, ["profile", "--json", str(file), *program])
        if status != 0:
            sys.exit(f"bench-tune: profile ended with status {status}")
        record = {"advice": report["advice"], "commit": report["commit"]}
        first = next((advice for advice in report["advice"] if advice["strategy"]), None)
        if first:
            strategy = self.base.with_suffix(".advice.toml")
            strategy.write_text(strategy_of(first))
            record["first"] = first
            record["measured"] = self.compare(["libc", str(strategy)], self.options.fresh)
        return record


def strategy_of(advice):
    """A strategy file with what one advice chooses: for the whole process, or by entries."""
    whole = [choice["lock"] for choice in advice["strategy"] if not choice["entry"]]
    text = f'version = 1\n[process]\nlock = "{(whole or ["libc"])[0]}"\n'
    for choice in advice["strategy"]:
        if not choice["entry"]:
            continue
        keys = {key.replace("_", "-"): value for key, value in choice["entry"].items() if value}
        name = keys.pop("key")
        keys = {name: keys.pop("name"), **keys, "lock": choice["lock"]}
        text += "[[lock]]\n" + "".join(f"{key} = {json.dumps(keys[key])}\n" for key in keys)
    return text


def medians_of(record):
    return {row["configuration"]: row["metric"]["median"] for row in record["summary"]}


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
    parser.add_argument("names", nargs="*", metavar="NAME[@THREADS]")
    options = parser.parse_args()
    # All names are relative to the root, so that records hold no other path.
    os.chdir(ROOT)
    for directory in (pathlib.Path(DATA), options.out):
        directory.mkdir(parents=True, exist_ok=True)
    # The scripts of the programs keep their data here.
    os.environ["PROGRAMS_CACHE"] = str(ROOT / DATA)
    for cell in cells(options.names, options):
        for step in options.step or STEPS:
            cell.step(step)


if __name__ == "__main__":
    main()
