#!/usr/bin/env python3
"""grids-csv.py OUTDIR RECORD...: converts the output of `unconvoy bench report` on standard input
to CSV files.

RECORDs are the report's files, in its order. A table becomes OUTDIR/RECORD/KIND.csv, the table of
goals OUTDIR/goals.csv. A cell `median (least..greatest)` becomes three columns, a cell
`median ± deviation %` two. Prints the missed goals, the parts of their peaks that libc and the
default keep, and the list of files as Markdown."""

import csv
import os
import re
import sys

KINDS = [
    ("relative to the best", "relative"),
    ("by type", "types"),
    ("median ± median absolute", "rate"),
    ("part of the row's own peak", "kept"),
    ("99th percentile of the wait", "wait"),
    ("99th percentile of the time inside", "inside"),
    ("Jain's", "fairness"),
    ("Processor time", "processor-time"),
    ("relative to libc", "relative-to-libc"),
    ("as a fraction of what self", "shares"),
    ("Throughput", "throughput"),
    ("controller's thread", "controller"),
    ("99.9th percentile", "latency"),
    ("Longest time", "longest"),
    ("Energy", "energy"),
]
NUMBER = r"\S+?(?: [kMGT])?"
RANGE = re.compile(rf"^({NUMBER}) \(({NUMBER})\.\.({NUMBER})\)$")
DEVIATION = re.compile(r"^(\S+(?: [kMG])?) ± (\S+) %$")
SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
LOADS = ["kept at 200 %", "kept at 3200 %"]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def plain(cell):
    """Resolves a unit prefix: 3.30 k becomes 3300."""
    match = re.match(r"^([\d.]+) ([kMGT])$", cell)
    return f"{float(match[1]) * SCALES[match[2]]:.10g}" if match else cell


def columns(heading, rows):
    """Splits cells with several values into columns; returns heading and rows."""
    for place in reversed(range(len(heading))):
        parts = [row[place] for row in rows]
        for form, names in [
            (RANGE, ["", " least", " greatest"]),
            (DEVIATION, ["", " deviation %"]),
        ]:
            if any(form.match(cell) for cell in parts):
                heading = (
                    heading[:place]
                    + [heading[place] + name for name in names]
                    + heading[place + 1 :]
                )
                for row in rows:
                    match = form.match(row[place])
                    row[place : place + 1] = (
                        match.groups() if match else [row[place]] + [""] * (len(names) - 1)
                    )
                break
    return heading, rows


out = sys.argv[1]
records = [os.path.splitext(os.path.basename(path))[0] for path in sys.argv[2:]]
lines, record = sys.stdin.read().split("\n"), None
files, commands, dates, goals, kept = {}, {}, {}, [], {}
for number, line in enumerate(lines):
    if line.startswith("## "):
        record = line.removeprefix("## ")
        if record not in records:
            sys.exit(f"{record} is none of the records")
        files[record] = []
    elif re.match(r"^`.*unconvoy bench ", line) and record:
        commands[record] = line.replace("target/release/", "")
    elif record and (
        date := re.search(
            r"(\d{4}-\d\d-\d\d \d\d:\d\d):\d\d UTC; load average (\S+) before, (\S+) after", line
        )
    ):
        dates[record] = f"{date[1]} | {date[2]} to {date[3]}"
    elif re.match(r"^\|[-| :]+\|$", line):
        rows = []
        for row in lines[number + 1 :]:
            if not row.startswith("|"):
                break
            rows.append(cells(row))
        heading = cells(lines[number - 1])
        title = next(text for text in reversed(lines[: number - 1]) if text)
        heading, rows = columns(heading, rows)
        kind = next((kind for words, kind in KINDS if words in title), "table")
        think = re.search(r"think (\d+) ns", title)
        if think and think[1] != "0":
            kind += f"-think-{think[1]}"
        path = f"{record}/{kind}.csv" if record else "goals.csv"
        os.makedirs(os.path.dirname(os.path.join(out, path)) or ".", exist_ok=True)
        with open(os.path.join(out, path), "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [heading, *([plain(cell) for cell in row] for row in rows)]
            )
        if record:
            assert path not in files[record], path
            files[record].append(path)
            if kind == "kept":
                places = [heading.index(load) if load in heading else None for load in LOADS]
                kept[record] = {
                    row[0]: ["-" if place is None else row[place] for place in places]
                    for row in rows
                }
        else:
            goals = rows

counts = {
    verdict: sum(row[0] == verdict for row in goals) for verdict in ["PASS", "MISS", "not judged"]
}
print(
    f"{counts['PASS']} goals passed, {counts['MISS']} missed, "
    f"{counts['not judged']} not judged; [all of them](grids/goals.csv).\n"
)
print("| missed goal | measured | limit | where |\n| --- | --- | --- | --- |")
previous = None
for verdict, goal, *values in goals:
    if verdict == "MISS":
        # Only the first of a goal's rows names it.
        print(f"| {' | '.join([goal if goal != previous else '', *values])} |")
        previous = goal
print("\nKept of the peak at 200 and 3200 % load (paper: load control .85 to .92 at 200 %):\n")
print("| record | libc, 200 % | default, 200 % | libc, 3200 % | default, 3200 % |")
print("| --- | --- | --- | --- | --- |")
for record, parts in kept.items():
    if "libc" in parts and "default" in parts and not record.startswith(("jain", "policies")):
        pairs = zip(parts["libc"], parts["default"])
        print(f"| {record} | {' | '.join(part for pair in pairs for part in pair)} |")
print("\n| record | UTC | load average | tables | command |\n| --- | --- | --- | --- | --- |")
for record, tables in files.items():
    links = ", ".join(
        f"[{os.path.splitext(os.path.basename(path))[0]}](grids/{path})" for path in tables
    )
    print(
        f"| [{record}](../records/grids/{record}.json) | {dates.get(record, ' | ')} | {links} | "
        f"{commands.get(record, '')} |"
    )
