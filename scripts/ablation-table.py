#!/usr/bin/env python3
"""Writes the tables of docs/evaluation/ablation.md from docs/records/ablation/*.json.

The records of `unconvoy bench` have their commands. A cell compares throughput within each round:
median of the ratios, smallest and largest.
"""

import json
import pathlib
import re
import statistics

OUTER_WAIT = "outer_wait_p99_ns"
ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/evaluation/ablation.md"


def cells(record):
    """Measured values by configuration and threads, then by round."""
    found = {}
    for run in record["runs"]:
        key = (run["cell"]["configuration"], run["cell"]["threads"])
        found.setdefault(key, {})[run["round"]] = run["measured"]
    return found


def median(runs, name):
    values = [values[name] for values in runs.values() if name in values]
    return statistics.median(values) if values else None


def outer_waits(runs):
    """99th percentile of the wait for `nested`'s outer lock; `never` if no thread acquired it."""
    found = sorted(values.get(OUTER_WAIT, float("inf")) / 1e6 for values in runs.values())
    text = [f"{wait:.0f}" if wait < float("inf") else "never" for wait in found]
    return f"{text[(len(text) - 1) // 2]} ({text[0]}..{text[-1]})"


def ratios(runs, base):
    found = sorted(
        values["ops_per_sec"] / base[number]["ops_per_sec"]
        for number, values in runs.items()
        if number in base
    )
    return f"{statistics.median(found):.2f} ({found[0]:.2f}..{found[-1]:.2f})"


def table(record):
    measured, processors = cells(record), record["context"]["processors"]
    parameters = record["parameters"]
    counts, rows = parameters["threads"], parameters["configurations"]
    base = "loiter+published" if "default@no-rules" in rows else "default"
    last = counts[-1]
    heading = [f"{100 * count // processors} %" for count in counts]
    heading += [f"Jain at {heading[-1]}", f"us/operation at {heading[-1]}"]
    has_outer = OUTER_WAIT in next(iter(measured[base, last].values()))
    if has_outer:
        heading += [f"p99 of the wait for the outer lock at {100 * counts[-2] // processors} %, ms"]
        heading += [f"at {100 * last // processors} %, ms"]
    lines = ["| row | " + " | ".join(heading) + " |", "| --- |" + " --- |" * len(heading)]
    for row in dict.fromkeys(rows):
        if (row, last) not in measured:
            continue
        line = [ratios(measured[row, count], measured[base, count]) for count in counts]
        fairness = median(measured[row, last], "jain")
        spent = median(measured[row, last], "cpu_ns_per_op") / 1e3
        line += ["" if fairness is None else f"{fairness:.2f}", f"{spent:.3g}"]
        if has_outer:
            line += [outer_waits(measured[row, count]) for count in counts[-2:]]
        lines.append(f"| `{row}` | " + " | ".join(line) + " |")
    context = record["context"]
    lines += [
        "",
        f"{context['cpu']}, {processors} processors, Linux {context['kernel'].split()[-1]}, "
        f"{context['date']}; {parameters['runs']} rounds of {parameters['seconds']} s.",
    ]
    return "\n".join(line.replace("|  |", "| |") for line in lines)


def main():
    text = PAGE.read_text()
    for path in sorted((ROOT / "docs/records/ablation").glob("*.json")):
        begin, end = f"<!-- generated: {path.stem} -->\n", f"<!-- end: {path.stem} -->"
        block = begin + "\n" + table(json.loads(path.read_text())) + "\n\n" + end
        old = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
        text, count = old.subn(lambda _: block, text)
        assert count == 1, f"{PAGE}: no block {path.stem}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
