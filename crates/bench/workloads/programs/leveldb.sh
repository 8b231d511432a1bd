#!/bin/sh
# LevelDB: THREADS threads read at random, through the database's only mutex and those of its
# caches.
. "$(dirname "$0")/../program.sh"

measured "$workloads/leveldb_bench" --workload readrandom --threads "$threads" \
	--seconds "$seconds" >"$dir/log"
awk '$1 == "ops_per_sec" { print "rate", $2, "operations/s"; found = 1 }
	END { exit !found }' "$dir/log"
