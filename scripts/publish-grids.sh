#!/usr/bin/env bash
# Turns the records in docs/records/grids into docs/evaluation/grids/*.csv and the block of
# docs/evaluation/grids.md. First copy the JSON files of `make bench-grids` to docs/records/grids.
set -euo pipefail

scripts=$(dirname "$0")
"${UNCONVOY:-target/release/unconvoy}" bench report docs/records/grids |
	python3 "$scripts/grids-csv.py" docs/evaluation/grids docs/records/grids/*.json |
	python3 "$scripts/write-block.py" docs/evaluation/grids.md records
