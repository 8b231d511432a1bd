#!/usr/bin/env bash
# Turns the results of `make bench` in $1 (default .bench) into the blocks of
# docs/evaluation/{measured,counter,costs}.md, docs/figures and docs/records.
set -euo pipefail

from=${1:-.bench}
scripts=$(dirname "$0")
mkdir -p docs/figures docs/records
cp "$from"/*.png "$from"/*.svg docs/figures/
# Records keep every run, in one line: they are for programs, not for readers.
for record in "$from"/*.json; do
	python3 -m json.tool --compact "$record" "docs/records/$(basename "$record")"
done

block() {
	python3 "$scripts/write-block.py" "docs/evaluation/$1.md" "$2"
}

# Drops the report's title, since the pages have their own, and goals that only the grids or the
# programs below can judge.
awk 'NR > 1 && /^## / { exit } NR > 1' "$from/report.md" | grep -v '^| not judged |' |
	block measured goals
awk '/^## / { on = $2 ~ /^counter/ } on' "$from/report.md" | block counter tables
awk '/^## / { on = $2 !~ /^counter/ } on' "$from/report.md" | block costs tables
python3 "$scripts/long-waits-table.py" "$from"/wait-*.json | block measured long-waits
for name in leveldb-readrandom leveldb-fillrandom raytrace; do
	printf '## %s\n\n' "$name"
	python3 "$scripts/compare-table.py" "$from/$name.json"
	printf '\n![%s](../figures/%s.png)\n\n' "$name" "$name"
done | block measured programs
