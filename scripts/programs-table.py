#!/usr/bin/env python3
"""Prints the block `table` of docs/evaluation/programs.md.

The arguments are records of scripts/bench-programs.sh, one for each program."""

import json
import os
import sys

# The goal: no real program's ratio is below this, at the thread counts in the records.
LIMIT = 0.97


def cell(row):
    """The median, and the median absolute deviation in percent of the median."""
    metric = row["metric"]
    return (
        f"{metric['median']:,.4g} ± {100 * metric['mad'] / metric['median']:.1f} %"
        if metric["median"] < 1000
        else f"{metric['median']:,.0f} ± {100 * metric['mad'] / metric['median']:.1f} %"
    )


records = {
    os.path.splitext(os.path.basename(path))[0]: json.load(open(path)) for path in sys.argv[1:]
}
if not records:
    sys.exit(
        "usage: programs-table.py RECORD.json... | write-block.py docs/evaluation/programs.md table"
    )
lines, missing = [], []
# What is below the goal, by whether it is beyond or within the spread.
slower = {"beyond": [], "within": []}
for name, record in sorted(records.items()):
    rows = {(row["threads"], row["configuration"]): row for row in record["summary"]}
    first, *others = record["plan"]["configurations"]
    what = (
        record["title"].split(": ", 1)[-1] if record["title"].count(": ") == 1 else record["title"]
    )
    for threads in record["plan"]["threads"]:
        for other in others:
            base, mine = rows.get((threads, first)), rows.get((threads, other))
            if not base or not mine or not base["metric"] or not mine["metric"]:
                missing.append(f"{name} at {threads} threads")
                continue
            ratio = mine["metric"]["median"] / base["metric"]["median"]
            beyond = "yes" if mine["differs"] else "no"
            if ratio < LIMIT:
                place = "beyond" if mine["differs"] else "within"
                slower[place].append(f"{name} at {threads} ({ratio:.2f})")
            configuration = "" if other == "default" else f" ({other})"
            lines.append(
                f"| {name}{configuration} | {what} | {threads} | {cell(base)} | {cell(mine)} | "
                f"{ratio:.3f} | {beyond} |"
            )
            # Only a program's first row has the description.
            what = ""

some = next(iter(records.values()))
context, plan = some["context"], some["plan"]
dates = sorted(record["context"]["date"] for record in records.values())
loads = [record["context"]["load_average"] for record in records.values()]
print(
    f"{context['cpu']}, {context['processors']} processors, "
    f"{context['memory_kib'] / 2**20:.0f} GiB, {context['kernel']}, {context['libc']}, "
    f"unconvoy {context['unconvoy']};\n{dates[0]} to {dates[-1]}; "
    f"load average before a program's runs {min(loads):.2f} to {max(loads):.2f}.\n"
)
below = "; ".join(
    f"{place} the spread: {', '.join(found)}" for place, found in slower.items() if found
)
goal = f"Below the goal of {LIMIT}, {below}" if below else f"No ratio is below the goal of {LIMIT}"
print(f"{plan['runs']} runs of each configuration. {goal}.\n")
if missing:
    print(f"Not measured, because a run failed: {'; '.join(missing)}.\n")
print("| program | what runs | threads | libc | unconvoy | ratio | beyond the spread |")
print("| --- | --- | --- | --- | --- | --- | --- |")
print("\n".join(lines))
