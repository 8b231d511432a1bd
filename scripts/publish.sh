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
	# The report's own title gives way to the preface's.
	tail -n +2 "$from/report.md"
	for name in leveldb-readrandom leveldb-fillrandom raytrace; do
		printf '\n## %s\n\n```text\n' "$(head -n 1 "$from/$name.txt")"
		tail -n +2 "$from/$name.txt"
		printf '```\n\n![%s](figures/%s.png)\n' "$name" "$name"
	done
} >docs/evaluation.md
