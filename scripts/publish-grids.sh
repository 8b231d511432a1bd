#!/bin/sh
# Turns the records of docs/records/grids into docs/evaluation/grids/*.csv and the block of docs/evaluation/grids.md.
# Copy the JSON files of `make bench-grids` there first.
set -eu

scripts=$(dirname "$0")
"${UNCONVOY:-target/release/unconvoy}" bench report docs/records/grids |
	python3 "$scripts/grids-csv.py" docs/evaluation/grids docs/records/grids/*.json |
	python3 "$scripts/write-block.py" docs/evaluation/grids.md records
