#!/usr/bin/env python3
"""Copies records of simulated figures, without the courses that no figure shows.

publish-simulated.py FOLDER RECORD.json...: writes FOLDER/NAME.json for each sim-NAME.json. Figure 8
of ASPLOS 2010 draws the course of the first seed alone, and the claims need none."""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
for path in map(pathlib.Path, sys.argv[2:]):
    text = path.read_text()
    record = json.loads(text)
    if record.get("quick") or not record["complete"]:
        sys.exit(f"{path} is quick or incomplete")
    later = [seed for point in record["results"] for seed in point["seeds"][1:]]
    reactions = [one for seed in later for one in seed["measured"].get("reactions", ())]
    for reaction in reactions:
        reaction["awake"] = []
    if reactions:
        text = json.dumps(record) + "\n"
    (folder / path.name.removeprefix("sim-")).write_text(text)
