#!/usr/bin/env python3
"""long-waits-table.py RECORD...: prints records of the longest wait for a lock, measured by
`unconvoy compare` of libc and the default lock, as one Markdown table."""

import json
import statistics
import sys

print(
    "| section | threads | longest wait, ms: libc | default | libc / default"
    " | Jain's index: libc | default | sections: default / libc |\n" + "| --- " * 8 + "|"
)


def section(record):
    program = record["plan"]["program"]
    length = int(program[program.index("--cs") + 1]) / 1e6
    return length, "--blocked" in program


records = [json.load(open(path)) for path in sys.argv[1:]]
for record in sorted(records, key=section):
    length, is_blocked = section(record)
    for threads in record["plan"]["threads"]:
        rows = {r["configuration"]: r for r in record["summary"] if r["threads"] == threads}
        runs = [r for r in record["runs"] if r["threads"] == threads]
        counts = [
            statistics.median(r["operations"] for r in runs if r["configuration"] == name)
            for name in ("default", "libc")
        ]
        waits = [rows[name]["metric"]["median"] / 1e6 for name in ("libc", "default")]
        ratio = rows["default"]
        print(
            f"| {length:g} ms{', asleep' if is_blocked else ''} | {threads}"
            f" | {waits[0]:.0f} | {waits[1]:.0f}"
            f" | {ratio['ratio']:.1f} ({ratio['low']:.1f} to {ratio['high']:.1f})"
            + "".join(f" | {rows[name]['fairness']['median']:.2f}" for name in ("libc", "default"))
            + f" | {counts[0] / counts[1]:.3f} |"
        )
context = records[0]["context"]
print(
    f"\n{context['cpu']}, {context['processors']} processors, {context['kernel']}, "
    f"{context['libc']}, {context['date']}; {records[0]['plan']['runs']} interleaved rounds of 1 s"
)
