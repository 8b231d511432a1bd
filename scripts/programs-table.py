#!/usr/bin/env python3
"""Prints the records of scripts/bench-programs.sh, one file per program, as docs/programs.md."""
import json
import os
import sys

# No real program is to be slower than this; the threads at which the requirement is stated are in the records.
LIMIT = 0.97


def cell(row):
    """Median and median absolute deviation, in percent of it."""
    metric = row["metric"]
    return f"{metric['median']:,.4g} ± {100 * metric['mad'] / metric['median']:.1f} %" if metric["median"] < 1000 else \
        f"{metric['median']:,.0f} ± {100 * metric['mad'] / metric['median']:.1f} %"


records = {os.path.splitext(os.path.basename(path))[0]: json.load(open(path)) for path in sys.argv[1:]}
if not records:
    sys.exit("usage: programs-table.py RECORD.json... >docs/programs.md")
lines, slower, missing = [], [], []
for name, record in sorted(records.items()):
    rows = {(row["threads"], row["configuration"]): row for row in record["summary"]}
    first, *others = record["plan"]["configurations"]
    what = record["title"].split(": ", 1)[-1] if record["title"].count(": ") == 1 else record["title"]
    for threads in record["plan"]["threads"]:
        for other in others:
            base, mine = rows.get((threads, first)), rows.get((threads, other))
            if not base or not mine or not base["metric"] or not mine["metric"]:
                missing.append(f"{name} at {threads} threads")
                continue
            ratio = mine["metric"]["median"] / base["metric"]["median"]
            beyond = "yes" if mine["differs"] else "no"
            if ratio < LIMIT:
                slower.append(f"{name} at {threads} ({ratio:.2f}" + (", beyond" if mine["differs"] else ", within") + " the spread)")
            configuration = "" if other == "default" else f" ({other})"
            lines.append(f"| {name}{configuration} | {what} | {threads} | {cell(base)} | {cell(mine)} | {ratio:.3f} | {beyond} |")

some = next(iter(records.values()))
context, plan = some["context"], some["plan"]
dates = sorted(record["context"]["date"] for record in records.values())
loads = [record["context"]["load_average"] for record in records.values()]
print(f"""# Real programs

Programs as Debian packages them, unmodified, with and without unconvoy. The server or the program is what runs under unconvoy; clients and load generators do without. Each is one
script of [crates/bench/workloads/programs](../crates/bench/workloads/programs), measured by `scripts/bench-programs.sh`: for {len(plan['threads'])} thread counts (as many
as processors, and four times that), {plan['runs']} runs of each configuration, interleaved in random order, each over some 2 seconds after a warm-up. Figures are rates, more is
better: the median of the runs ± the median absolute deviation in percent of it. The ratio is that of the medians, with unconvoy to without. A difference is beyond the spread when the
medians are further apart than twice the (normalised) deviations of both together.

{context['cpu']}, {context['processors']} processors, {context['memory_kib'] / 2**20:.0f} GiB, {context['kernel']}, {context['libc']}, unconvoy {context['unconvoy']};
{dates[0]} to {dates[-1]}; load average before a program's runs {min(loads):.2f} to {max(loads):.2f}.

The goal is a ratio of at least {LIMIT}, everywhere. {'Below it: ' + '; '.join(slower) + '.' if slower else 'Nothing is below it.'}
""")
if missing:
    print(f"Not measured, because a run failed: {'; '.join(missing)}.\n")
print("| program | what runs | threads | libc | unconvoy | ratio | beyond the spread |")
print("| --- | --- | --- | --- | --- | --- | --- |")
print("\n".join(lines))
