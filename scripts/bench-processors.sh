#!/bin/sh
# Measures one contended lock on 1, 2, 4, ... processors up to the machine's number, then condition
# variables, reader-writer locks and LevelDB on all of them: 5 minutes with 16. The smaller numbers
# are measured side by side, on processors of their own. Requires a quiet machine.
# Results go to .bench-processors/ (or $1); UNCONVOY is the command to use.
# scripts/processors-table.py tabulates them.
set -eu

out=${1:-.bench-processors}
unconvoy=${UNCONVOY:-target/release/unconvoy}
workloads=${WORKLOADS:-target/workloads}
# The processors that this shell may use, one a word.
allowed=$(taskset -pc $$ | sed 's/.*: //; s/,/ /g' | tr ' ' '\n' |
	awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) printf "%d ", i }')
all=$(echo $allowed | wc -w)
mkdir -p "$out"
trap '[ $? = 0 ] || echo "failed: see the last lines of $out/*.txt" >&2' EXIT

# Background jobs ignore SIGINT.
jobs=
trap 'kill $jobs 2>/dev/null || :; wait; exit 130' HUP INT TERM

# $1: number of processors; $2: how many to leave out before them. Replaces the subshell that calls
# it.
counter() {
	own=$(echo $allowed | cut -d ' ' -f "$(($2 + 1))-$(($2 + $1))" --output-delimiter ,)
	exec taskset -c "$own" "$unconvoy" bench counter --runs 3 --seconds 0.3 \
		--threads 1,2,4,8,16,32,64,256 --think 0,1000,10000 --workloads "$workloads" \
		--out "$out/counter-$1" >"$out/counter-$1.txt" 2>&1
}

# The halves of what is left, so that no two measurements share a processor.
first=0
count=$((all / 2))
while [ "$count" -ge 1 ]; do
	counter "$count" "$first" &
	jobs="$jobs $!"
	first=$((first + count))
	count=$((count / 2))
done
failed=
for job in $jobs; do
	wait "$job" || failed=1
done
jobs=
[ -z "$failed" ] || exit 1
(counter "$all" 0)

threads=1,2,4,8,16,64
"$unconvoy" bench condvar --runs 3 --seconds 0.3 --threads 2,16,32 --workloads "$workloads" \
	--out "$out/condvar" >"$out/condvar.txt" 2>&1
"$unconvoy" bench rwlock --runs 3 --seconds 0.3 --threads "$threads" --workloads "$workloads" \
	--out "$out/rwlock" >"$out/rwlock.txt" 2>&1
for workload in readrandom fillrandom; do
	"$unconvoy" compare --locks libc,default --threads "$threads" --runs 3 \
		--title "LevelDB $workload" \
		--metric '^ops_per_sec ([0-9.]+)$' --ops '^ops ([0-9]+)$' --fairness '^jain ([0-9.]+)$' \
		--json "$out/leveldb-$workload.json" -- \
		"$workloads/leveldb_bench" --workload "$workload" --threads '{threads}' --seconds 0.6 \
		>"$out/leveldb-$workload.txt" 2>&1
done
