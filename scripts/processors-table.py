#!/usr/bin/env python3
"""processors-table.py DIR: prints the results of scripts/bench-processors.sh as Markdown.

Ratios are medians of the ratios within a round."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

out = Path(sys.argv[1])
records = {
    int(path.stem.split("-")[1]): json.loads(path.read_text())
    for path in out.glob("counter-*.json")
}


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def values(record, configuration, think, threads, metric):
    """A measured value of every round."""
    return {
        run["round"]: run["measured"][metric]
        for run in record["runs"]
        if run["cell"] == {"configuration": configuration, "think": think, "threads": threads}
    }


def ratio(record, think, threads, metric, to):
    ours = values(record, "default", think, threads, metric)
    theirs = values(record, to, think, threads, metric)
    ratios = [ours[number] / theirs[number] for number in ours if number in theirs]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def counter(title, metric):
    largest = records[max(records)]
    counts = sorted({run["cell"]["threads"] for run in largest["runs"]} - {1})
    print(f"{title}\n")
    rows = []
    for think in sorted({run["cell"]["think"] for run in largest["runs"]}):
        for processors, record in sorted(records.items()):
            cells = [ratio(record, think, threads, metric, "libc-adaptive") for threads in counts]
            rows.append([f"{think / 1000:g} us", str(processors), *cells])
    table(["think time", "processors", *(f"{threads} threads" for threads in counts)], rows)


def of_bench(name):
    """The first table of another benchmark."""
    found = json.loads((out / f"{name}.json").read_text())["tables"][0]
    print(f"{found['title']}\n")
    table(found["header"], found["rows"])


print("## One lock\n")
counter("Throughput of the default relative to libc's adaptive mutex:", "ops_per_sec")
counter("Processor time per operation, likewise; below 1 is better:", "cpu_ns_per_op")
largest = max(records)
record = records[largest]
print(f"Jain's index over 0.3 s, {largest} processors, no think time:\n")
counts = sorted({run["cell"]["threads"] for run in record["runs"]} - {1})
median = lambda row, threads: statistics.median(values(record, row, 0, threads, "jain").values())
table(
    ["lock", *(f"{threads} threads" for threads in counts)],
    [
        [row, *(f"{median(row, threads):.2f}" for threads in counts)]
        for row in ["libc", "libc-adaptive", "default"]
    ],
)
context = record["context"]
print(
    f"{context['cpu']}, {largest} processors, {context['kernel']}, {context['libc']}, "
    f"{context['date']}\n"
)
print("## Condition variables\n")
of_bench("condvar")
print("## Reader-writer locks\n")
of_bench("rwlock")
for workload in ["readrandom", "fillrandom"]:
    print(f"## LevelDB {workload}\n", flush=True)
    path = out / f"leveldb-{workload}.json"
    script = Path(__file__).parent / "compare-table.py"
    subprocess.run([sys.executable, script, path], check=True)
    print()
