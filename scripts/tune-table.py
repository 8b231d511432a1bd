#!/usr/bin/env python3
"""Prints the block `table` of docs/evaluation/tune.md.

The arguments are records of scripts/bench-tune.py, one for each cell."""

import json
import math
import pathlib
import statistics
import sys
import tomllib

import origins

# The steps of scripts/bench-tune.py.
STEPS = ("oracle", "tune", "fresh", "advice")
# The goals of the cells: against the best configuration, against libc and the default, and the gain
# over libc that counts as large.
ORACLE, BASELINE, LARGE = 0.97, 0.98, 1.3
# The goals of the advice: a gain that counts, the least that a remedy may have, and the mean error.
TRUE_GAIN, HARMLESS, RELATIVE_ERROR, ERROR = 1.15, 0.98, 0.15, 0.03


def rounds_of(comparison):
    """The rates of a comparison's configurations, round by round.

    A round counts if the processors stayed where they are, and were idle before each run. If most
    rounds were disturbed, all count."""
    rounds = {}
    for run in comparison["runs"]:
        rounds.setdefault(run["round"], []).append(run)
    times = {number: [run["transfer_ns"] for run in runs] for number, runs in rounds.items()}
    calm = [number for number, ns in times.items() if None not in ns and max(ns) < 2 * min(ns)]
    counted = calm if 2 * len(calm) > len(rounds) else list(rounds)
    rates = [{run["configuration"]: run["metric"] for run in rounds[n]} for n in sorted(counted)]
    return rates, f"{len(calm)} of {len(rounds)}"


def ratio(rounds, over, under):
    """The median of the rounds' ratios, and order statistics around it that enclose the true median
    with a probability of at least 95 %, if there are six rounds."""
    ratios = sorted(rates[over] / rates[under] for rates in rounds)
    count, low = len(ratios), 0
    while sum(math.comb(count, under) for under in range(low + 2)) <= 0.025 * 2**count:
        low += 1
    return statistics.median(ratios), ratios[low], ratios[-1 - low]


def shown(triple):
    value, low, high = triple
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def line_ns(record):
    """The median time in which a cache line moved between the processors before the runs."""
    times = [run["transfer_ns"] for run in record["runs"] if run["transfer_ns"]]
    return f"{statistics.median(times):.0f}" if times else "-"


def strategy_in(rounds):
    """The name of the strategy file; libc without one, because the user then changes nothing."""
    return next((name for name in rounds[0] if name.endswith(".toml")), "libc")


class Cell:
    """The result of a cell with fresh runs."""

    def __init__(self, record):
        self.name = f"{record['name']} at {record['threads']}"
        self.record, self.tune = record, record["tune"]
        rounds, self.calm = rounds_of(record["fresh"])
        named = [name for name in rounds[0] if not name.endswith(".toml")]
        self.best = max(named, key=lambda name: ratio(rounds, name, "libc"))
        self.best_gain = ratio(rounds, self.best, "libc")
        found = strategy_in(rounds)
        self.to_best = ratio(rounds, found, self.best)
        self.to_default = ratio(rounds, found, "default")
        self.to_libc = ratio(rounds, found, "libc")

    def meets_oracle(self):
        return self.to_best[0] >= ORACLE

    def meets_baselines(self):
        return min(self.to_default[0], self.to_libc[0]) >= BASELINE

    def columns(self):
        yield self.record["name"] + ("" if self.record["real"] else " *")
        yield str(self.record["threads"])
        yield self.best
        yield from map(shown, (self.best_gain, self.to_best, self.to_default, self.to_libc))
        yield f"{self.tune['took_s']:.0f} of {self.tune['plan']['budget_s']:.0f} s"
        yield f"{line_ns(self.tune)}, {line_ns(self.record['fresh'])} ns"
        yield self.calm
        yield "yes" if self.meets_oracle() and self.meets_baselines() else "**no**"
        yield self.tune["sentence"]


class Advised:
    """The first advice of a cell with a remedy, and what the remedy gained."""

    def __init__(self, record):
        self.name = f"{record['name']} at {record['threads']}"
        self.record, self.advice = record, record["advice"]["first"]
        rounds, _ = rounds_of(record["advice"]["measured"])
        self.gain = ratio(rounds, strategy_in(rounds), "libc")
        expected = self.advice["gain"]
        # The factor applies to a part of the time.
        values = [expected[key] for key in ("expected", "low", "high")]
        self.expected = tuple(1 + (value - 1) * expected["part"] for value in values)
        self.error = abs(self.expected[0] - self.gain[0])

    def columns(self):
        yield from (self.record["name"], str(self.record["threads"]), f"`{self.advice['lock']}`")
        yield self.advice["problem"].replace("-", " ")
        yield from (shown(self.expected), shown(self.gain), f"{self.error:.2f}")


def list_of(rows):
    return ", ".join(row.name for row in rows) or "none"


def print_table(heads, rows):
    print(f"\n| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def print_cells(cells):
    missed = [cell for cell in cells if not cell.meets_oracle()]
    below = [cell for cell in cells if not cell.meets_baselines()]
    large = [cell for cell in cells if cell.record["real"] and cell.to_libc[0] >= LARGE]
    count = len(cells)
    goals = [
        (f"at least {ORACLE} of the best, in 90 % of the cells", count - len(missed), missed),
        (f"at least {BASELINE} of the default and of libc, always", count - len(below), below),
    ]
    rows = [[goal, f"{met} of {count}", f"all but: {list_of(those)}"] for goal, met, those in goals]
    rows.append([f"{LARGE} times libc in five real cells", str(len(large)), list_of(large)])
    print_table(["goal", "cells that meet it", "which"], rows)
    heads = ["program", "threads", "best", "best / libc", "tuned / best", "tuned / default"]
    heads += ["tuned / libc", "time", "line", "calm", "meets the goals", "tune says"]
    print_table(heads, (cell.columns() for cell in cells))


def print_advice(records):
    """Prints expected and measured gains."""
    advised = [Advised(record) for record in records if "first" in record["advice"]]
    if not advised:
        return
    error = statistics.mean(row.error for row in advised)
    allowed = statistics.mean(RELATIVE_ERROR * abs(row.gain[0] - 1) + ERROR for row in advised)
    large = [row for row in advised if row.gain[0] >= TRUE_GAIN]
    harmful = [row for row in advised if row.gain[0] < HARMLESS]
    print(
        f"\nThe profile's advice had a remedy in {len(advised)} of {len(records)} cells. "
        f"{len(large)} of the remedies gained {TRUE_GAIN} or more.\n"
        f"The mean error of the expected gain is {error:.3f}; the goal is {allowed:.3f} or less.\n"
        f"Remedies that cost more than 2 %: {list_of(harmful)}."
    )
    heads = ["program", "threads", "lock", "problem", "expected / libc", "measured / libc", "error"]
    print_table(heads, (row.columns() for row in advised))


def contexts_of(record):
    """Each step's name, context (None of a profile) and commit."""
    for step in STEPS:
        if step in record:
            yield step, record[step].get("context"), record[step]["commit"]
    if measured := record.get("advice", {}).get("measured"):
        yield "advice", measured["context"], measured["commit"]


def machines_of(records):
    """A line for each machine, with all commits. A commit of some steps alone names them."""
    steps, found = {}, []
    for record in records:
        for step, _, commit in contexts_of(record):
            steps.setdefault(commit, set()).add(step)
    every = set().union(*steps.values())
    named = {
        commit: commit if own == every else f"{commit}: {', '.join(sorted(own, key=STEPS.index))}"
        for commit, own in steps.items()
    }
    for record in records:
        configurations = [row["configuration"] for row in record["oracle"]["summary"]]
        transactions = "with" if "elided" in configurations else "without"
        for _, context, commit in contexts_of(record):
            # A profile has no context; it is of the same machine.
            context = context or record["fresh"]["context"]
            machine = origins.described(context, f"{transactions} hardware transactions")
            found.append((f"{machine}, unconvoy {context['unconvoy']}", named[commit]))
    return origins.lines(found)


def main(paths):
    records = [json.loads(pathlib.Path(path).read_text()) for path in paths]
    records = [record for record in records if "fresh" in record]
    if not records:
        sys.exit("usage: tune-table.py RECORD.json... | write-block.py PAGE table")
    programs = pathlib.Path(__file__).parent / "tune-programs.toml"
    order = list(tomllib.loads(programs.read_text()))
    records.sort(key=lambda record: (order.index(record["name"]), record["threads"]))
    contexts = [context for record in records for _, context, _ in contexts_of(record) if context]
    dates = sorted(context["date"] for context in contexts)
    print(f"{machines_of(records)};\n{dates[0]} to {dates[-1]}.")
    print_cells([Cell(record) for record in records])
    print_advice([record for record in records if "advice" in record])


if __name__ == "__main__":
    main(sys.argv[1:])
