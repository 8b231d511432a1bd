#!/usr/bin/env python3
"""Prints a record of `unconvoy compare --json` as a Markdown table.

The table includes ratios to the first configuration."""

import json
import sys


def cell(row, key, scale=1.0, digits=4):
    value = row.get(key)
    return (
        "-"
        if not value
        else f"{value['median'] * scale:.{digits}g}"
        f" ({value['min'] * scale:.{digits}g}..{value['max'] * scale:.{digits}g})"
    )


record = json.load(open(sys.argv[1]))
rows = {(row["threads"], row["configuration"]): row for row in record["summary"]}
first, *others = record["plan"]["configurations"]
lower = record["metric"]["lower_is_better"]
scale, unit = (1.0, "s") if lower else (1e-3, "thousand operations/s")
print(
    f"{unit}; processor time per operation in ns; Jain's index; median (smallest..largest) of "
    f"{record['plan']['runs']} runs; ratios, with 95 % intervals: above 1 is better\n"
)
print(
    "| threads | "
    + " | ".join(
        f"{name} | ns/op | Jain" + ("" if name == first else f" | ratio to {first}")
        for name in [first, *others]
    )
    + " |"
)
print("|" + " --- |" * (1 + 3 + 4 * len(others)))
for threads in record["plan"]["threads"]:
    line = [str(threads)]
    for name in [first, *others]:
        row = rows[threads, name]
        jain = row.get("fairness")
        line += [
            cell(row, "metric", scale),
            cell(row, "cpu_per_operation_s", 1e9),
            f"{jain['median']:.3f}" if jain else "-",
        ]
        if name != first:
            line.append(f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
    print("| " + " | ".join(line) + " |")
context = record["context"]
print(f"\n{record['conclusion']}\n")
print(
    f"{context['cpu']}, {context['processors']} processors, {context['kernel']}, "
    f"{context['libc']}, {context['date']}; load average before {context['load_average']:.2f}"
)
