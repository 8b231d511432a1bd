#!/usr/bin/env python3
"""Writes what simulated figures found into the table of docs/evaluation/simulated-claims.md.

claims-table.py FILE.md RECORD.json...: each row `| figure | claim | found | verdict |` gets the record's number and verdict. A claim that
held and does not any more, or the other way round, is told: its reason is to be found, or goes."""
import json
import re
import sys

path, records = sys.argv[1], sys.argv[2:]
claims = {}
for record in map(json.load, map(open, records)):
    if not record["complete"]:
        sys.exit(f"{record['figure']} is not complete")
    claims |= {(record["figure"], claim["claim"]): claim for claim in record["claims"]}
lines, held = open(path).read().split("\n"), [0, 0]
for number, line in enumerate(lines):
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    if len(cells) != 4 or re.match(r"figure$|-", cells[0]):
        continue
    claim = claims.pop((cells[0], cells[1]), None)
    if claim is None:
        print(f"no record of {cells[0]}: {cells[1]}", file=sys.stderr)
        held[0] += cells[3] == "holds"
        held[1] += 1
        continue
    if claim["holds"] != (cells[3] == "holds"):
        print(f"{cells[0]}: {cells[1]}: {'holds now' if claim['holds'] else 'holds no more'} ({claim['found']})", file=sys.stderr)
    verdict = "holds" if claim["holds"] else cells[3] if cells[3] != "holds" else "**does not** [?]"
    lines[number] = f"| {cells[0]} | {cells[1]} | {claim['found']} | {verdict} |"
    held[0] += claim["holds"]
    held[1] += 1
for figure, claim in claims:
    print(f"not in the table: {figure}: {claim}", file=sys.stderr)
text = re.sub(r"^\d+ of \d+ claims hold\.$", f"{held[0]} of {held[1]} claims hold.", "\n".join(lines), flags=re.M)
open(path, "w").write(text)
