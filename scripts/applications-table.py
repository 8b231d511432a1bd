#!/usr/bin/env python3
"""applications-table.py RECORD...: prints records of `unconvoy bench` as Markdown.

Throughput by thread count, and the part of the peak that is left at 200 and 3200 % load."""

import json
import sys

import origins

LOADS = [200, 3200]

for path in sys.argv[1:]:
    record = json.load(open(path))
    medians = lambda table: "median ±" in table["title"] and "by type" not in table["title"]
    kept = {
        row[0]: [dict(zip(table["header"], row)).get(f"kept at {load} %", "-") for load in LOADS]
        for table in record["tables"] if "own peak" in table["title"]
        for row in table["rows"]
    }
    [measured] = filter(medians, record["tables"])
    context = record["context"]
    print(f"{record['parameters']['title']}: {measured['title'].partition(': ')[2]}\n")
    print("| " + " | ".join([*measured["header"], "kept at 200 %", "at 3200 %"]) + " |")
    print("| --- |" + " --- |" * (len(measured["header"]) + 1))
    for row in measured["rows"]:
        print("| " + " | ".join([*row, *kept[row[0]]]) + " |")
    print(f"\n{origins.described(context)}, {context['date']}; load average "
          f"{context['load_average_before']} to {context['load_average_after']}:\n"
          f"`{' '.join(['unconvoy', *context['command'][1:]])}`\n")
