#!/usr/bin/env python3
"""Validates the simulator on two applications, from the record of one run of each.

validate-applications.py DATA FOLDER: DATA is the data set of `unconvoy bench tatp --load`. Records
each application once with two threads, measures it under a dozen locks, simulates the recorded
locks on this machine's calibration, and writes FOLDER/applications.json. Takes 10 minutes on a
quiet machine; a file that FOLDER already has is kept. UNCONVOY is the command to use."""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

data, folder = sys.argv[1], pathlib.Path(sys.argv[2])
unconvoy = os.environ.get("UNCONVOY", "target/release/unconvoy")
workloads = os.environ.get("WORKLOADS", "target/workloads")
# The picture would not be finished within minutes under the last four with more than two threads.
locks = (
    "default loiter+none loiter+park tpmcs+control mcs+control ttas+none ttas+control futex+none"
    " mcs+none tpmcs+none clh+park ticket+none"
).split()
near = (0.5, 2)  # a cache line's time, relative to the calibrated one
programs = {
    "raytrace": (["raytrace", "--size", "1400x1050"], [("1,2", locks), ("3,8,32", locks[:8])]),
    "tatp": (["tatp", "--data", data, "--seconds", "0.5"], [("1,2,3,8,32", locks)]),
}


def run(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def is_whole(path):
    try:
        return path.suffix != ".json" or json.loads(path.read_text()).get("complete", True)
    except ValueError:
        return False


def made(name, *words):
    """The path of a file that a command writes, unless it exists and is complete."""
    path = folder / name
    if not (path.exists() and is_whole(path)):
        run(unconvoy, *[path if word == "FILE" else word for word in words])
    return path


machine = made("machine.toml", "sim", "--calibrate", "FILE")
calibrated = next(
    2 * int(line.split("=")[1].split("#")[0])
    for line in machine.read_text().splitlines()
    if line.startswith("same_cache_ns")
)
report = {
    "schema": "unconvoy-applications-1",
    "command": "scripts/validate-applications.py DATA FOLDER",
    "programs": {},
}
for name, ((program, *options), parts) in programs.items():
    command = [f"{workloads}/{program}", *options, "--threads"]
    stats = made(f"{name}-stats.json", "run", "--stats", "FILE", "--", *command, "2")
    simulated = made(
        f"{name}-simulated.json", "sim", "--profile", stats, "--recorded-threads", "2",
        "--machine", machine, "--threads", "1,2,3,8,32", "--seconds", "0.3",
        "--locks", ",".join(locks), "--json", "FILE",
    )
    metric = "^ops_per_sec ([0-9.]+)"
    runs, context = {}, None
    for number, (threads, some) in enumerate(parts):
        measured = made(
            f"{name}-{number}.json", "compare", "--quiet", "--locks", ",".join(some),
            "--threads", threads, "--runs", "3", "--timeout", "60", "--metric", metric,
            "--json", "FILE", "--", *command, "{threads}",
        )
        record = json.loads(measured.read_text())
        context = record["context"]
        for one in record["runs"]:
            if near[0] < (one["transfer_ns"] or calibrated) / calibrated < near[1]:
                runs.setdefault((one["configuration"], one["threads"]), []).append(one["metric"])
    per_s = {}
    for one in json.loads(simulated.read_text())["results"]:
        per_s[one["series"], int(one["x"])] = one["measured"]["outcome"]["per_s"]
    rows = []
    for (lock, threads), values in sorted(runs.items(), key=lambda item: item[0][1]):
        default = ("default", threads)
        if lock != "default" and default in runs:
            of_default = statistics.median(values) / statistics.median(runs[default])
            of_simulated = per_s[lock, threads] / per_s[default]
            rows.append({
                "lock": lock, "threads": threads, "runs": len(values),
                "measured": round(of_default, 4), "simulated": round(of_simulated, 4),
            })
    errors = sorted(abs(row["simulated"] / row["measured"] - 1) for row in rows)
    factors = [row["simulated"] / row["measured"] for row in rows]
    report["programs"][name] = {
        "context": {key: context[key] for key in ("cpu", "processors", "kernel", "date")},
        "rows": rows,
        "median_error": round(statistics.median(errors), 3),
        "percentile_90": round(errors[math.ceil(0.9 * (len(errors) - 1))], 3),
        "far_off": sum(max(factor, 1 / factor) > 3 for factor in factors),
    }
    found = report["programs"][name]
    print(f"{name}: {len(rows)} rows, median error {found['median_error']:.0%}, 90th percentile"
          f" {found['percentile_90']:.0%}, off by more than 3 times: {found['far_off']}")
(folder / "applications.json").write_text(json.dumps(report, indent=1) + "\n")
