#!/usr/bin/env bash
# Compares libc's mutex with unconvoy's default lock on real programs at 1, 2, 8 and 32 threads.
#
# LevelDB is Debian's; its driver is in crates/bench/workloads, the ray tracer in papers/workloads.
# Each program runs 5 times in each of 8 cells, interleaved, which takes 2 minutes in all: the
# intervals of fewer runs would say nothing. Results go to .demo/ (or $1).
set -euo pipefail

out=${1:-.demo}
programs=target/workloads
unconvoy=target/release/unconvoy
threads=1,2,8,32
mkdir -p "$out"

compare() {
	name=$1 title=$2
	shift 2
	echo
	"$unconvoy" compare --locks libc,default --threads "$threads" --runs 5 --title "$title" \
		--metric-name "$unit" \
		--metric '^ops_per_sec ([0-9.]+)$' --ops '^ops ([0-9]+)$' --fairness '^jain ([0-9.]+)$' \
		--json "$out/$name.json" --csv "$out/$name.csv" --plot "$out/$name.svg" -- "$@" |
		tee "$out/$name.txt"
}

unit=reads/s
compare readrandom "LevelDB readrandom" \
	"$programs/leveldb_bench" --workload readrandom --threads '{threads}' --seconds 0.8
unit=writes/s
compare fillrandom "LevelDB fillrandom" \
	"$programs/leveldb_bench" --workload fillrandom --threads '{threads}' --seconds 0.8
unit=rays/s
compare raytrace "SPLASH-2-style ray tracer" \
	"$programs/raytrace" --threads '{threads}' --size 2000x1500

echo
echo "Plots, JSON and CSV are in $out/: $(cd "$out" && ls *.svg | tr '\n' ' ')"
echo "Conclusions:"
for name in readrandom fillrandom raytrace; do
	printf '  %s: %s\n' "$name" "$(tail -n 1 "$out/$name.txt")"
done
