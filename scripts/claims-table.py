#!/usr/bin/env python3
"""Updates the table of docs/evaluation/simulated-claims.md from records of simulated figures.

claims-table.py FILE.md RECORD.json...: the rows `| figure | claim | found | verdict |` of each
record's figure get its claims, numbers and verdicts. A claim that does not hold keeps its reason;
[?] stands for a reason that is missing. A changed verdict is printed. A new figure's rows follow
those of the figure whose name its own begins with. An old record is of one seed, and its claims
have no numbers by seed."""

import json
import re
import sys

path, records = sys.argv[1], sys.argv[2:]
lines = open(path).read().split("\n")


def cells(line):
    found = [cell.strip() for cell in line.strip("|").split(" | ")]
    return found if len(found) == 4 and not re.match(r"figure$|-", found[0]) else None


rows = [number for number, line in enumerate(lines) if cells(line)]
first, last = rows[0], rows[-1]
figures, before = {}, {}
for line in lines[first : last + 1]:
    figure, claim, found, verdict = cells(line)
    figures.setdefault(figure, []).append((claim, found, verdict))
    before[figure, claim] = verdict
for file in records:
    record = json.load(open(file))
    missing = [key for key in ("figure", "complete", "claims") if key not in record]
    if missing:
        print(f"{file} is no record of a simulated figure: it has no {missing[0]}", file=sys.stderr)
        sys.exit(2)
    figure = record["figure"]
    if not record["complete"]:
        sys.exit(f"{figure} is incomplete; finish its run first")
    if record.get("quick"):
        sys.exit(f"{figure} is a quick version, with less than the figure's points")
    # A record with failed points is complete, too.
    if record.get("failures"):
        sys.exit(f"{figure} has failed points; run it again with --resume")
    told = []
    for claim in record["claims"]:
        words, held, seeds = claim["claim"], int(claim["holds"]), 1
        if "numbers" in claim:
            held = claim["seeds_that_hold"]
            # Before records had `seeds_judged`, an infinite number looked like a missing one.
            known = sum(number is not None for number in claim["numbers"])
            seeds = claim.get("seeds_judged", known)
        old = before.get((figure, words))
        reason = re.search(r"\[[0-9?]+\]", old or "")
        verdict = "holds"
        if not claim["holds"]:
            verdict = f"**does not** {reason[0] if reason else '[?]'}"
        if old is None:
            print(f"{figure}: new: {words}: {verdict} ({claim['found']})", file=sys.stderr)
        elif claim["holds"] != old.startswith("holds"):
            now = "holds now" if claim["holds"] else "no longer holds"
            print(f"{figure}: {words}: {now} ({claim['found']})", file=sys.stderr)
        # With an even number of seeds, the median may hold although no seed's number does.
        if held != (seeds if claim["holds"] else 0):
            verdict += f"; with {held} of {seeds} seeds it does"
        told.append((words, claim["found"], verdict))
    if figure in figures:
        figures[figure] = told
    else:
        names = list(figures)
        near = [number for number, name in enumerate(names) if figure.startswith(name + "-")]
        place = near[0] + 1 if near else len(names)
        order = names[:place] + [figure] + names[place:]
        figures[figure] = told
        figures = {name: figures[name] for name in order}
table = [f"| {figure} | {' | '.join(row)} |" for figure, of in figures.items() for row in of]
rows = [row for of in figures.values() for row in of]
ours = [row for row in rows if "(ours" in row[0]]
held = lambda rows: sum(verdict.startswith("holds") for _, _, verdict in rows)
count = f"{held(rows)} of {len(rows)} claims hold"
if ours:
    papers = [row for row in rows if row not in ours]
    count += f": {held(papers)} of the papers' {len(papers)}, and {held(ours)} of our {len(ours)}"
text = re.sub(
    r"^\d+ of \d+ claims hold[^.\n]*",
    count,
    "\n".join(lines[:first] + table + lines[last + 1 :]),
    flags=re.M,
)
open(path, "w").write(text)
