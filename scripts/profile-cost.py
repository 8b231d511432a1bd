#!/usr/bin/env python3
"""Measures what `unconvoy profile` costs: rates of programs with and without it.

    scripts/profile-cost.py [--out FILE.json] [--minutes 20] [NAME...]   measure, print the table
    scripts/profile-cost.py --peers ...                                  measure other profilers too
    scripts/profile-cost.py --table FILE.json                            print a record's table

Run `make build` first, and install the packages in scripts/packages-programs.txt. An existing
FILE.json of the same machine gains rounds. --peers needs root, bpftrace, linux-perf, and mutrace in
PATH; it skips what is not installed, with a message.

A round runs every program once with and once without each profiler, in random order. Its ratio is
the rate with the profiler over the rate without. The table has the median of the rounds' ratios,
and the interval between two order statistics that contains the true median with a probability of
at least 95 %, or of less if there are fewer than six rounds; the table then says of how much.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import origins

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("BUILT", ROOT / "target/release"))
WORKLOADS = pathlib.Path(os.environ.get("WORKLOADS", ROOT / "target/workloads"))
SCRIPTS = ROOT / "crates/bench/workloads/programs"
PROCESSORS = len(os.sched_getaffinity(0))
THREADS = str(4 * PROCESSORS)
LIMIT_S = 120
# The fewest rounds whose range contains the true median with at least 95 %.
FEWEST_ROUNDS = 6

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
PROFILE = "unconvoy profile"
# Commands that run a program without and with a profiler. Scripted programs run with PROFILE alone.
PROFILERS = {
    PROFILE: ([], [BUILT / "unconvoy", "profile", "--json", "JSON", "--text", "FILE", "--"]),
    f"{PROFILE} --lock loiter": (
        [BUILT / "unconvoy", "run", "--"],
        [BUILT / "unconvoy", "profile", "--lock", "loiter"]
        + ["--json", "JSON", "--text", "FILE", "--"],
    ),
}
PEERS = {
    PROFILE: PROFILERS[PROFILE],
    "mutrace": ([], ["mutrace"]),
    "bpftrace, futex-waits.bt": (
        [],
        ["sh", "-c", f'exec bpftrace -o FILE {ROOT}/scripts/futex-waits.bt -c "$*"', "sh"],
    ),
    "perf lock record": ([], ["perf", "lock", "record", "-q", "-o", "FILE", "--"]),
    "perf trace -s": ([], ["perf", "trace", "-s", "-o", "FILE", "--"]),
}
PEERS_PROGRAMS = ["counter, saturated", "leveldb"]


def rows(with_peers, names):
    """The rows of a round: programs and profilers."""
    if with_peers:
        found = []
        for profiler in PEERS:
            program = profiler.split(",")[0].split()[0]
            if program == "unconvoy" or shutil.which(program):
                found += [(name, profiler) for name in PEERS_PROGRAMS]
            else:
                print(f"missing: {program}", file=sys.stderr)
    else:
        found = [(name, profiler) for name in WORKLOAD_PROGRAMS for profiler in PROFILERS]
        found += [(name, PROFILE) for name in SCRIPTED]
    return [row for row in found if not names or row[0].split(",")[0] in names]


def measure(name, under, seconds, cache):
    """Runs a program; returns its rate, and the waits per second that `unconvoy profile` found."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        files = {"JSON": str(report), "FILE": f"{folder}/output"}
        under = [re.sub("JSON|FILE", lambda it: files[it[0]], str(word)) for word in under]
        if name in WORKLOAD_PROGRAMS:
            program, *arguments = WORKLOAD_PROGRAMS[name]
            command = [*under, WORKLOADS / program, *arguments]
            command += ["--threads", THREADS, "--seconds", str(seconds)]
            pattern = r"^ops_per_sec ([0-9.]+)$"
        else:
            command = [SCRIPTS / f"{name}.sh", THREADS, str(seconds)]
            pattern = r"^rate ([0-9.e+]+) "
        variables = {
            "PROGRAMS_UNDER": " ".join(under),
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
        found = re.search(pattern, ended.stdout, re.MULTILINE)
        if ended.returncode != 0 or not found:
            sys.exit(f"{name}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
        waits = None
        if report.exists():
            profile = json.loads(report.read_text())
            count = sum(lock["waits"] for lock in profile["locks"] if lock["kind"] != "cond")
            waits = count / max(profile["seconds"], 1e-9)
        return float(found[1]), waits


def one_round(selected, seconds, cache):
    """Measures all rows, each once with and once without its profiler."""
    cells = []
    for name, profiler in selected:
        commands = (PROFILERS | PEERS)[profiler]
        measured = {}
        for which in random.sample([0, 1], 2):
            measured[which] = measure(name, commands[which], seconds, cache)
        (off, _), (on, waits) = measured[0], measured[1]
        cells.append(
            {"program": name, "profiler": profiler, "off": off, "on": on, "waits_per_s": waits}
        )
    date = f"{datetime.datetime.now(datetime.timezone.utc):%F %T} UTC"
    return {"date": date, "commit": origins.commit(), "cells": cells}


def interval(values):
    """The order statistics around the median that contain it with at least 95 %, and that
    probability. All of the range, with less, if there are too few values."""
    values, n = sorted(values), len(values)
    below, tail = 0, 0.5**n
    while below < n // 2 - 1 and 2 * (tail + math.comb(n, below + 1) * 0.5**n) <= 0.05:
        below += 1
        tail += math.comb(n, below) * 0.5**n
    return values[below], values[n - 1 - below], 1 - 2 * tail


def rate(value):
    """A rate with at least three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(record):
    """The record as Markdown."""
    machine, rounds = record["machine"], record["rounds"]
    commits = ", ".join(sorted({one["commit"] for one in rounds}))
    lines = [
        f"{machine['cpu']}, {machine['processors']} processors, {machine['kernel']}, "
        f"{machine['libc']}, commit {commits};\n"
        f"{rounds[0]['date']} to {rounds[-1]['date']}: `{' '.join(record['command'])}`.\n",
        f"{len(rounds)} rounds, {4 * machine['processors']} threads.\n",
    ]
    by_row = {}
    for cell in (cell for one in rounds for cell in one["cells"]):
        by_row.setdefault((cell["program"], cell["profiler"]), []).append(cell)
    is_sure = all(len(cells) >= FEWEST_ROUNDS for cells in by_row.values())
    lines += [
        "| program | profiler | rate without it | ratio with it | "
        f"{'95 % interval' if is_sure else 'interval'} | waits/s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (name, profiler), cells in by_row.items():
        ratios = [cell["on"] / cell["off"] for cell in cells]
        low, high, level = interval(ratios)
        of_level = "" if is_sure else f" ({math.floor(100 * level)} %)"
        waits = [cell["waits_per_s"] for cell in cells if cell["waits_per_s"] is not None]
        lines.append(
            f"| {name} | `{profiler}` | {rate(statistics.median(cell['off'] for cell in cells))} | "
            f"{statistics.median(ratios):.3f} | {low:.3f} to {high:.3f}{of_level} | "
            f"{f'{statistics.median(waits):,.0f}' if waits else '-'} |"
        )
    return "\n".join(lines)


def seconds_of(record):
    """The length of a record's runs. Older records have it in their command alone."""
    words = " ".join(record["command"])
    found = re.search(r"--seconds[ =](\d+)", words)
    return record.get("seconds", int(found[1]) if found else 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, help="write the measurements to this file")
    parser.add_argument("--table", type=pathlib.Path, help="measure nothing")
    parser.add_argument("--minutes", type=float, default=20, help="start no round after this time")
    parser.add_argument("--seconds", type=int, default=1, help="length of a run")
    parser.add_argument("--peers", action="store_true", help="measure other profilers too")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return
    selected = rows(options.peers, options.names)
    begin = time.monotonic()
    command = ["scripts/profile-cost.py", *sys.argv[1:]]
    record = {"machine": origins.machine(), "command": command, "seconds": options.seconds}
    record["rounds"] = []
    if options.out and options.out.exists():
        known = json.loads(options.out.read_text())
        if seconds_of(known) != options.seconds:
            sys.exit(
                f"{options.out} has runs of {seconds_of(known)} s: measure with --seconds "
                f"{seconds_of(known)}, or into another file"
            )
        if why := origins.difference(known["machine"], record["machine"]):
            sys.exit(f"{options.out} is of another machine: {why}; choose another --out")
        record = known
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o755)
        longest = 0
        while True:
            start = time.monotonic()
            record["rounds"].append(one_round(selected, options.seconds, cache))
            if options.out:
                options.out.write_text(json.dumps(record, indent=1) + "\n")
            longest = max(longest, time.monotonic() - start)
            if time.monotonic() + longest - begin > 60 * options.minutes:
                break
    print(table(record))


if __name__ == "__main__":
    main()
