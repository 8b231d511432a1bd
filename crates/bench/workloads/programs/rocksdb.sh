#!/bin/sh
# RocksDB's own db_bench: THREADS threads, each with nine random reads to one write.
. "$(dirname "$0")/../program.sh"

numbers='--num=200000 --value_size=100 --compression_type=none --disable_wal=1
	--cache_size=268435456'
# shellcheck disable=SC2086 # words
make_rocksdb() { db_bench --benchmarks=filluniquerandom,compact $numbers --db="$1"; }

cp -r "$(prepared rocksdb)" "$dir/db"
# shellcheck disable=SC2086
measured db_bench --benchmarks=readrandomwriterandom --use_existing_db=1 --readwritepercent=90 \
	$numbers --db="$dir/db" --threads="$threads" --duration="$seconds" >"$dir/log" 2>&1
# readrandomwriterandom : 1.234 micros/op 123456 ops/sec 2.000 seconds 246912 operations; ...
awk '$1 == "readrandomwriterandom" {
		for (i = 2; i <= NF; i++)
			if ($i == "ops/sec") { print "rate", $(i - 1), "operations/s"; found = 1 }
	}
	END { exit !found }' "$dir/log" || fail "no rate"
