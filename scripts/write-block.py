#!/usr/bin/env python3
"""write-block.py PAGE NAME: replaces the block NAME of a Markdown page with standard input.

A block lies between the lines `<!-- generated: NAME -->` and `<!-- end: NAME -->`. The rest of the
page is written by hand. Fails if standard input is empty."""

import pathlib
import sys

page, name = sys.argv[1:]
begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
text = open(page).read()
before, found, rest = text.partition(begin)
after = rest.partition(end)
if not found or not after[1]:
    sys.exit(f"{page}: no block between {begin.strip()} and {end}")
block = sys.stdin.read().strip()
if not block:
    sys.exit(f"{page}: nothing to write into the block {name}: standard input is empty")
unfinished = pathlib.Path(f"{page}.new")
unfinished.write_text(f"{before}{begin}\n{block}\n\n{end}{after[2]}")
unfinished.replace(page)
