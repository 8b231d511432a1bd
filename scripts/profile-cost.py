#!/usr/bin/env python3
"""Measures what `unconvoy profile` costs: rates of programs with and without it.

    scripts/profile-cost.py [--out FILE.json] [--minutes 20] [NAME...]   measure, print the table
    scripts/profile-cost.py --table FILE.json                            print a record's table

Run `make build` first, and install the packages in scripts/packages-programs.txt. An existing
FILE.json of the same machine and build gains rounds.

A round runs every program once with and once without the profile, in random order. Its ratio is
the rate with the profile over the rate without. The table has the median of the rounds' ratios, and
the interval between two order statistics that contains the true median with a probability of at
least 95 %.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("BUILT", ROOT / "target/release"))
WORKLOADS = pathlib.Path(os.environ.get("WORKLOADS", ROOT / "target/workloads"))
SCRIPTS = ROOT / "crates/bench/workloads/programs"
PROCESSORS = len(os.sched_getaffinity(0))
THREADS = str(4 * PROCESSORS)
LIMIT_S = 120

# Names and arguments of the workload programs.
WORKLOAD_PROGRAMS = {
    "counter, saturated": ["counter"],
    "counter, 2 us between": ["counter", "--think", "2000"],
    "hashtable": ["hashtable"],
    "leveldb": ["leveldb_bench", "--workload", "readrandom"],
}
# Names of the scripts of the other programs.
SCRIPTED = [
    "memcached",
    "mariadb",
    "nginx",
    "redis",
    "rocksdb",
    "java",
    "python",
    "pbzip2",
    "pigz",
    "xz",
    "zstd",
    "x265",
]
# Options of `unconvoy profile` that select the locks, and the command for the same locks without a
# profile. Scripted programs run with libc's.
LOCKS = {"libc": ([], []), "unconvoy": (["--lock", "loiter"], [BUILT / "unconvoy", "run", "--"])}


def rows():
    """The names of a round's rows: programs and locks."""
    workloads = [(name, locks) for name in WORKLOAD_PROGRAMS for locks in LOCKS]
    return workloads + [(name, "libc") for name in SCRIPTED]


def measure(name, locks, with_profile, seconds, cache):
    """Runs a program; returns its rate, and the number of waits per second if profiled."""
    options, without = LOCKS[locks]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        files = ["--json", report, "--text", pathlib.Path(folder, "report.txt")]
        under = [BUILT / "unconvoy", "profile", *options, *files, "--"] if with_profile else without
        if name in WORKLOAD_PROGRAMS:
            program, *arguments = WORKLOAD_PROGRAMS[name]
            command = [*under, WORKLOADS / program, *arguments]
            command += ["--threads", THREADS, "--seconds", str(seconds)]
            pattern = r"^ops_per_sec ([0-9.]+)$"
        else:
            command = [SCRIPTS / f"{name}.sh", THREADS, str(seconds)]
            pattern = r"^rate ([0-9.e+]+) "
        variables = {
            "PROGRAMS_UNDER": " ".join(map(str, under)),
            "PROGRAMS_CACHE": cache,
            "WORKLOADS": str(WORKLOADS),
        }
        ended = subprocess.run(
            command,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        rate = re.search(pattern, ended.stdout, re.MULTILINE)
        if ended.returncode != 0 or not rate:
            sys.exit(f"{name}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
        waits = None
        if with_profile:
            found = json.loads(report.read_text())
            count = sum(lock["waits"] for lock in found["locks"] if lock["kind"] != "cond")
            waits = count / max(found["seconds"], 1e-9)
        return float(rate[1]), waits


def one_round(names, seconds, cache):
    """Measures all rows, each once with and once without the profile."""
    cells = []
    for name, locks in rows():
        if names and name.split(",")[0] not in names:
            continue
        rates = {}
        for with_profile in random.sample([False, True], 2):
            rates[with_profile] = measure(name, locks, with_profile, seconds, cache)
        off, (on, waits) = rates[False][0], rates[True]
        cells.append({"program": name, "locks": locks, "off": off, "on": on, "waits_per_s": waits})
    return {"date": f"{datetime.datetime.now(datetime.timezone.utc):%F %T} UTC", "cells": cells}


def interval(values):
    """The order statistics around the median that contain it with at least 95 %; all of the range
    if there are too few values."""
    values, n = sorted(values), len(values)
    below, tail = 0, 0.5**n
    while below < n // 2 - 1 and 2 * (tail + math.comb(n, below + 1) * 0.5**n) <= 0.05:
        below += 1
        tail += math.comb(n, below) * 0.5**n
    return values[below], values[n - 1 - below]


def table(record):
    """The record as Markdown."""
    machine, rounds = record["machine"], record["rounds"]
    lines = [
        f"{machine['cpu']}, {machine['processors']} processors, {machine['kernel']}, "
        f"{machine['libc']}, commit {machine['commit']};\n"
        f"{rounds[0]['date']} to {rounds[-1]['date']}: `{' '.join(record['command'])}`.\n",
        f"{len(rounds)} rounds, {THREADS} threads, period 1 ms.\n",
        "| program | locks | without a profile | ratio with it | 95 % interval | waits per second |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    by_row = {}
    for cell in (cell for one in rounds for cell in one["cells"]):
        by_row.setdefault((cell["program"], cell["locks"]), []).append(cell)
    for (name, locks), cells in by_row.items():
        ratios = [cell["on"] / cell["off"] for cell in cells]
        low, high = interval(ratios)
        lines.append(
            f"| {name} | {locks} | {statistics.median(cell['off'] for cell in cells):,.0f} | "
            f"{statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} | "
            f"{statistics.median(cell['waits_per_s'] for cell in cells):,.0f} |"
        )
    return "\n".join(lines)


def machine():
    """The machine and the build."""
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "processors": PROCESSORS,
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "commit": commit.stdout.strip() or "unknown",
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, help="write the measurements to this file")
    parser.add_argument("--table", type=pathlib.Path, help="measure nothing")
    parser.add_argument("--minutes", type=float, default=20, help="start no round after this time")
    parser.add_argument("--seconds", type=int, default=1, help="length of a run")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return
    begin = time.monotonic()
    command = ["scripts/profile-cost.py", *sys.argv[1:]]
    record = {"machine": machine(), "command": command, "rounds": []}
    if options.out and options.out.exists():
        known = json.loads(options.out.read_text())
        if known["machine"] != record["machine"]:
            sys.exit(f"{options.out} is of another machine or build: {known['machine']}")
        record = known
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o755)
        longest = 0
        while True:
            start = time.monotonic()
            record["rounds"].append(one_round(options.names, options.seconds, cache))
            if options.out:
                options.out.write_text(json.dumps(record, indent=1) + "\n")
            longest = max(longest, time.monotonic() - start)
            if time.monotonic() + longest - begin > 60 * options.minutes:
                break
    print(table(record))


if __name__ == "__main__":
    main()
