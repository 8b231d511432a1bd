#!/bin/sh
# Measures every workload under every pair of lock and load manager, and the papers' figures.
# Takes hours and requires a quiet machine. Continues an interrupted run.
#
#   scripts/bench-grids.sh [OUTDIR [NAME...]]    OUTDIR: results (default .bench-grids);
#                                                NAME: a grid or sweep
#   RUNS=3 SECONDS_EACH=1 LOCKS=all              rounds, seconds per run, rows
#   DATA=DIR                                     directory of the data sets of tatp and tpcc
#
# Number of runs per workload: thread counts (8) x pairs x rounds. With 100 pairs, one second and
# three rounds, a workload takes 40 minutes.
set -eu

out=${1:-.bench-grids}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- counter hashtable nested leveldb-readrandom leveldb-fillrandom \
	leveldb-readwhilewriting tatp tpcc raytrace splash \
	contention interval interference
unconvoy=${UNCONVOY:-target/release/unconvoy}
data=${DATA:-$out/data}
failed=
mkdir -p "$out"

# Runs a benchmark from where the last call stopped. Keeps a complete record.
measure() {
	name=$1
	shift
	if grep -qs '^  "complete": true' "$out/$name.json"; then
		echo "$name: complete"
		return
	fi
	[ ! -e "$out/$name.json" ] || set -- "$@" --resume "$out/$name.json"
	"$unconvoy" bench "$@" --runs "${RUNS:-3}" --seconds "${SECONDS_EACH:-1}" \
		--out "$out/$name" || {
		status=$?
		[ $status != 130 ] || exit 130
		failed="$failed $name"
	}
}

# Loads the data set of a benchmark if it is missing.
load() {
	[ -e "$data/$1/dataset" ] || "$unconvoy" bench "$1" --load --data "$data/$1"
}

draw() {
	figure=$1
	shift
	for record in "$@"; do
		[ -e "$record" ] || return 0
	done
	"$unconvoy" papers run "$figure" --from "$@" --out "$out" >/dev/null
}

for name in "$@"; do
	case $name in
	leveldb-*) measure "$name" leveldb --workload "${name#leveldb-}" --locks "${LOCKS:-all}" ;;
	tatp | tpcc)
		load "$name" && measure "$name" "$name" --data "$data/$name" --locks "${LOCKS:-all}" ||
			failed="$failed $name"
		;;
	contention | interval | interference) measure "$name" "$name" ;;
	*) measure "$name" "$name" --locks "${LOCKS:-all}" ;;
	esac
done

draw asplos-9 "$out/contention.json"
draw asplos-10 "$out/interval.json"
draw asplos-11 "$out/splash.json" "$out/tatp.json" "$out/tpcc.json"
draw asplos-12 "$out/interference.json"
draw damon-1 "$out/tatp.json"
if [ -n "$failed" ]; then
	echo "failed:$failed" >&2
	exit 1
fi
