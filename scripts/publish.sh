#!/bin/sh
# Turns the results of `make bench` in $1 (default .bench) into docs/evaluation.md, docs/figures and docs/records.
set -eu

from=${1:-.bench}
mkdir -p docs/figures docs/records
cp "$from"/*.png "$from"/*.svg docs/figures/
cp "$from"/*.csv docs/records/
# Each run is in the records; on one line, since nobody reads them as they are.
for record in "$from"/*.json; do
	python3 -c 'import json, sys; json.dump(json.load(open(sys.argv[1])), open(sys.argv[2], "w"), separators=(",", ":"))' \
		"$record" "docs/records/$(basename "$record")"
done

{
	cat docs/evaluation-preface.md
	# The report's own title gives way to the preface's; what it could not judge is below.
	tail -n +2 "$from/report.md" | grep -v '^| not judged | LevelDB'
	for name in leveldb-readrandom leveldb-fillrandom raytrace; do
		printf '\n## %s\n\n' "$name"
		python3 "$(dirname "$0")/compare-table.py" "$from/$name.json"
		printf '\n![%s](figures/%s.png)\n' "$name" "$name"
	done
} >docs/evaluation.md
