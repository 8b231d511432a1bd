#!/usr/bin/env python3
"""Prints the block `table` of docs/evaluation/programs.md.

The arguments are records of scripts/bench-programs.sh, one for each program."""

import json
import math
import os
import statistics
import sys

import origins

# The goal: no real program's ratio is below this, at the thread counts in the records.
LIMIT = 0.97
# Probability that a table without a ratio below the goal names one.
ERROR_RATE = 0.05


def cell(row):
    """The median, and the median absolute deviation in percent of the median."""
    metric = row["metric"]
    digits = ",.4g" if metric["median"] < 1000 else ",.0f"
    return f"{metric['median']:{digits}} ± {100 * metric['mad'] / metric['median']:.1f} %"


def within_rounds(record, threads, name, value):
    """The ratios of a value of the runs to the first configuration's in the same round."""
    runs = {
        (run["configuration"], run["round"]): value(run)
        for run in record["runs"]
        if run["threads"] == threads
    }
    first = record["plan"]["configurations"][0]
    return [
        runs[name, round] / base
        for (configuration, round), base in runs.items()
        if configuration == first and (name, round) in runs
    ]


def time_per_request(run):
    """Processor time for the work that the rate counts, up to a factor."""
    return (run["user_s"] + run["system_s"]) / (run["wall_s"] * run["metric"])


def by_ranks(distances):
    """The probability of distances as low as these around 0: Wilcoxon's signed ranks."""
    ordered = sorted(distances, key=abs)
    above = sum(rank for rank, it in enumerate(ordered, 1) if it >= 0)
    parts = [1.0] + above * [0.0]
    for rank in range(1, len(ordered) + 1):
        parts = [
            (part + (parts[total - rank] if total >= rank else 0.0)) / 2
            for total, part in enumerate(parts)
        ]
    return sum(parts)


def by_mean(distances):
    """The same by Student's t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    freedom = len(distances) - 1
    error = statistics.stdev(distances) / math.sqrt(len(distances))
    angle = math.atan(statistics.mean(distances) / error / math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for index in range(1 + odd, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * index / (index + 1)
    inside = math.sin(angle) * total
    return (1 + ((angle + inside) * 2 / math.pi if odd else inside)) / 2


def probability_of_limit(ratios, level):
    """Bounds the probability of ratios as low as these if the true one were LIMIT. The mean is the
    blunter test of disturbed values. Ranks of few values cannot reach `level`; they would only
    double what the mean says."""
    distances = [math.log(ratio / LIMIT) for ratio in ratios]
    if 0.5 ** len(distances) > level:
        return by_mean(distances)
    return min(1.0, 2 * min(by_ranks(distances), by_mean(distances)))


def below_limit(cells):
    """The cells below LIMIT, with ERROR_RATE for all of them together (Holm 1979). `cells` has the
    ratios and the name of each."""
    strictest = ERROR_RATE / max(len(cells), 1)
    probabilities = [(probability_of_limit(ratios, strictest), name) for ratios, name in cells]
    found = []
    for place, (probability, name) in enumerate(sorted(probabilities)):
        if probability > ERROR_RATE / (len(probabilities) - place):
            break
        found.append(name)
    return found


records = {
    os.path.splitext(os.path.basename(path))[0]: json.load(open(path)) for path in sys.argv[1:]
}
if not records:
    sys.exit(
        "usage: programs-table.py RECORD.json... | write-block.py docs/evaluation/programs.md table"
    )
lines, missing, cells, lower = [], [], [], []
for name, record in sorted(records.items()):
    rows = {(row["threads"], row["configuration"]): row for row in record["summary"]}
    first, *others = record["plan"]["configurations"]
    what = (
        record["title"].split(": ", 1)[-1] if record["title"].count(": ") == 1 else record["title"]
    )
    for threads in record["plan"]["threads"]:
        for other in others:
            base, mine = rows.get((threads, first)), rows.get((threads, other))
            if not base or not mine or "low" not in mine:
                missing.append(f"{name} at {threads} threads")
                continue
            ratios = within_rounds(record, threads, other, lambda run: run["metric"])
            times = within_rounds(record, threads, other, time_per_request)
            place = f"{name} at {threads} ({mine['ratio']:.2f})"
            cells.append((ratios, place))
            if mine["ratio"] < LIMIT:
                lower.append(place)
            configuration = "" if other == "default" else f" ({other})"
            incomplete = "" if record.get("complete", True) else " (incomplete)"
            lines.append(
                f"| {name}{configuration} | {what} | {threads} | {cell(base)} | {cell(mine)} | "
                f"{len(ratios)}{incomplete} | "
                f"{mine['ratio']:.3f} ({mine['low']:.3f} to {mine['high']:.3f}) | "
                f"{statistics.median(times):.3f} |"
            )
            # Only a program's first row has the description.
            what = ""

dates = sorted(record["context"]["date"] for record in records.values())
loads = [record["context"]["load_average"] for record in records.values()]
machines = origins.lines(
    (f"{origins.described(context)}, unconvoy {context['unconvoy']}", record.get("commit"))
    for record in records.values()
    for context in [record["context"]]
)
print(
    f"{machines};\n{dates[0]} to {dates[-1]}; "
    f"load average before a program's runs {min(loads):.2f} to {max(loads):.2f}.\n"
)
proven = below_limit(cells)
print(
    f"Below the goal of {LIMIT}, with an error rate of {100 * ERROR_RATE:.0f} % for the table: "
    f"{', '.join(proven) or 'none'}."
)
open_ones = [place for place in lower if place not in proven]
print(f"Lower than the goal, but not significantly: {', '.join(open_ones) or 'none'}.\n")
if missing:
    print(f"Not measured, because a run failed: {'; '.join(missing)}.\n")
print("| program | what runs | threads | libc | unconvoy | pairs | ratio | processor time |")
print("| --- | --- | --- | --- | --- | --- | --- | --- |")
print("\n".join(lines))
