#!/usr/bin/env python3
"""Measures the bookkeeping of a special set of cores, as a share of a program's processor time.

    scripts/special-set-cost.py [--out FILE.json] [--repeats 5]   print the table

Run `make build` first. The cost has two parts. The interposer measures the controller's part
(`cpu_ns` of the record's `special`); the kernel measures the program's processor time. The waiters'
part is the number of contended acquisitions times `--wait-ns`, the time of one more clock reading
and a few additions (crates/preload/src/special/kernel.rs, `cost_of_a_recorded_wait`).
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("BUILT", ROOT / "target/release"))
WORKLOADS = pathlib.Path(os.environ.get("WORKLOADS", ROOT / "target/workloads"))

# Names and commands. Each program runs for about a second.
PROGRAMS = {
    "counter": ["counter", "--seconds", "1"],
    "counter, 1 us between": ["counter", "--seconds", "1", "--think", "1000"],
    "counter, 10 us between": ["counter", "--seconds", "1", "--think", "10000"],
    "hashtable": ["hashtable", "--seconds", "1"],
    "nested": ["nested", "--seconds", "1"],
    "leveldb, random reads": [
        "leveldb_bench",
        "--workload",
        "readrandom",
        "--num",
        "20000",
        "--seconds",
        "1",
    ],
}


def run(command, folder):
    """Runs a program; returns its processor seconds and its record."""
    record = folder / "record.json"
    record.unlink(missing_ok=True)
    before = os.times()
    subprocess.run(
        [BUILT / "unconvoy", "run", "--confine", "--stats", record, "--", *command],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = os.times()
    seconds = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return seconds, json.loads(record.read_text())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, help="write the measurements to this file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--wait-ns",
        type=float,
        default=30,
        help="overhead of a contended acquisition, in nanoseconds [default: %(default)g]",
    )
    options = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    counts = [processors, 4 * processors, 32 * processors]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repeats):
            for name, command in PROGRAMS.items():
                for threads in counts:
                    full = [WORKLOADS / command[0], *command[1:], "--threads", str(threads)]
                    seconds, record = run(full, pathlib.Path(folder))
                    special = record["special"]
                    waits = sum(lock["contended"] for lock in record["locks"])
                    row = rows.setdefault((name, threads), [])
                    row.append(
                        {
                            "seconds": seconds,
                            "controller": special["cpu_ns"] * 1e-9 / seconds,
                            "waiters": waits * options.wait_ns * 1e-9 / seconds,
                            "tasks": special["most_tasks"],
                            "moves": special["moves"],
                        }
                    )
    model = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    machine = (
        f"{model[1] if model else platform.machine()}, {processors} processors, "
        f"{platform.system()} {platform.release()}, {datetime.date.today()}"
    )
    if options.out:
        cells = [
            {"program": name, "threads": threads, "runs": runs}
            for (name, threads), runs in rows.items()
        ]
        options.out.write_text(
            json.dumps(
                {
                    "machine": machine,
                    "command": sys.argv,
                    "wait_ns": options.wait_ns,
                    "cells": cells,
                },
                indent=1,
            )
            + "\n"
        )
    print(
        f"{machine}; medians of {options.repeats} runs, maximum in brackets; "
        "percent of the program's processor time.\n"
    )
    print("| program | threads | in the set | masks set | controller | waiters | both |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (name, threads), runs in rows.items():
        median = lambda what: statistics.median(run[what] for run in runs)
        both = [run["controller"] + run["waiters"] for run in runs]
        print(
            f"| {name} | {threads} | {median('tasks'):.0f} | {median('moves'):.0f} | "
            f"{100 * median('controller'):.2f} | {100 * median('waiters'):.2f} | "
            f"{100 * statistics.median(both):.2f} ({100 * max(both):.2f}) |"
        )


if __name__ == "__main__":
    main()
