#!/usr/bin/env python3
"""long-waits-table.py RECORD...: prints records of the longest wait for a lock, measured by
`unconvoy compare` of libc and the default lock, as one Markdown table."""

import json
import statistics
import sys

KINDS = {"--blocked": ", asleep", "rwlock-write": ", writers"}

print(
    "| section | threads | longest wait, ms: libc | default | libc / default"
    " | Jain's index: libc | default | processor time per section, ms: libc | default"
    " | sections: default / libc |\n" + "| --- " * 10 + "|"
)


def section(record):
    program = record["plan"]["program"]
    kind = next((name for word, name in KINDS.items() if word in program), "")
    return int(program[program.index("--cs") + 1]) / 1e6, kind


records = [json.load(open(path)) for path in sys.argv[1:]]
for record in sorted(records, key=section):
    length, kind = section(record)
    for threads in record["plan"]["threads"]:
        rows = [
            next(
                row
                for row in record["summary"]
                if row["threads"] == threads and row["configuration"] == name
            )
            for name in ("libc", "default")
        ]
        libc, default = [
            statistics.median(
                run["operations"]
                for run in record["runs"]
                if run["threads"] == threads and run["configuration"] == row["configuration"]
            )
            for row in rows
        ]
        ratio = rows[1]
        cells = [f"{length:g} ms{kind}", str(threads)]
        cells += [f"{row['metric']['median'] / 1e6:.0f}" for row in rows]
        cells += [f"{ratio['ratio']:.1f} ({ratio['low']:.1f} to {ratio['high']:.1f})"]
        cells += [f"{row['fairness']['median']:.2f}" for row in rows]
        cells += [f"{row['cpu_per_operation_s']['median'] * 1e3:.2f}" for row in rows]
        print("| " + " | ".join([*cells, f"{default / libc:.3f}"]) + " |")
context = records[0]["context"]
print(
    f"\n{context['cpu']}, {context['processors']} processors, {context['kernel']}, "
    f"{context['libc']}, {context['date']}; {records[0]['plan']['runs']} interleaved rounds of 1 s"
)
