#!/bin/sh
# Measures every number of docs/evaluation/{measured,counter,costs}.md. Requires a quiet machine.
# Results go to .bench/ (or $1); scripts/publish.sh publishes them.
set -eu

out=${1:-.bench}
unconvoy=target/release/unconvoy
mkdir -p "$out"

"$unconvoy" bench pair --seconds 0.3 --out "$out/pair"
"$unconvoy" bench idle --out "$out/idle"
"$unconvoy" bench sensor --out "$out/sensor"
"$unconvoy" bench memory --out "$out/memory"
"$unconvoy" bench bump --sampler contenders --out "$out/bump"
"$unconvoy" bench condvar --out "$out/condvar"
"$unconvoy" bench rwlock --out "$out/rwlock"
"$unconvoy" bench counter --seconds 2 --locks tpmcs+control,tpmcs+none \
	--out "$out/counter-saturated"
"$unconvoy" bench counter --seconds 1 --threads 2,4,8,32,64 --locks tpmcs+control \
	--think 1000,10000 --out "$out/counter-think"
"$unconvoy" bench counter --seconds 1 --threads 2,8,64 --latency --out "$out/counter-latency"
for workload in readrandom fillrandom; do
	"$unconvoy" compare --locks libc,default --threads 1,2,4,8,16,32 --runs 5 \
		--title "LevelDB $workload" \
		--metric '^ops_per_sec ([0-9.]+)$' --ops '^ops ([0-9]+)$' --fairness '^jain ([0-9.]+)$' \
		--json "$out/leveldb-$workload.json" --plot "$out/leveldb-$workload" -- \
		target/workloads/leveldb_bench --workload "$workload" --threads '{threads}' --seconds 1 \
		>"$out/leveldb-$workload.txt"
done
# The longest wait, for sections that are longer than waiters poll.
for section in 100000 500000 2000000 '2000000 --blocked' '2000000 --kind rwlock-write'; do
	name=wait-$(echo "$section" | tr -d ' ')
	# shellcheck disable=SC2086 # several words
	"$unconvoy" compare --locks libc,default --threads 2,8,32 --runs 8 \
		--title "Longest wait, in nanoseconds: --cs $section" \
		--metric '^max_ns ([0-9]+)$' --lower-is-better --ops '^ops ([0-9]+)$' \
		--fairness '^jain ([0-9.]+)$' --json "$out/$name.json" -- target/workloads/counter \
		--seconds 1 --latency --threads '{threads}' --cs $section >"$out/$name.txt"
done
"$unconvoy" compare --locks libc,default --threads 1,2,4,8,16,32 --runs 5 \
	--title "SPLASH-2-style ray tracer" \
	--metric '^seconds ([0-9.]+)$' --lower-is-better --ops '^ops ([0-9]+)$' \
	--json "$out/raytrace.json" --plot "$out/raytrace" -- \
	target/workloads/raytrace --threads '{threads}' >"$out/raytrace.txt"
"$unconvoy" bench report "$out" >"$out/report.md"
