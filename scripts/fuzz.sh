#!/usr/bin/env bash
# Runs each parser of crates/cli/src/fuzz.rs under libFuzzer for SECONDS, and prints how many inputs
# it has parsed. Inputs that reach new code are kept in target/fuzz/corpus, and inputs that fail in
# target/fuzz/failed: add the latter to fuzz/corpus once they are mended.
#
#   scripts/fuzz.sh SECONDS [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
if [ $# -eq 0 ]; then
	set -- fuzz/corpus/*
fi
# The versions of the other builds.
cp Cargo.lock fuzz/Cargo.lock
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
for part in inline-8bit-counters pc-table trace-compares; do
	coverage="$coverage -Cllvm-args=-sanitizer-coverage-$part"
done
export CARGO_TARGET_DIR=$PWD/target/fuzz
RUSTFLAGS="--cfg fuzzing $coverage -Cdebug-assertions" cargo build --quiet --release \
	--manifest-path fuzz/Cargo.toml --target "$(rustc -vV | sed -n 's/^host: //p')"
failed=
total=0
trap 'exit 130' INT TERM # libFuzzer ends at a signal as if its time were over
for place; do
	name=$(basename "$place")
	kept=target/fuzz/corpus/$name
	mkdir -p "$kept" target/fuzz/failed
	log=target/fuzz/$name.log
	UNCONVOY_FUZZ=$name "$(ls target/fuzz/*/release/unconvoy-fuzz)" -max_total_time="$seconds" \
		-timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 -verbosity=0 \
		-artifact_prefix="target/fuzz/failed/$name-" "$kept" "fuzz/corpus/$name" >"$log" 2>&1 ||
		failed="$failed $name"
	count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	total=$((total + ${count:-0}))
	printf '%-16s %12s inputs in %s s\n' "$name" "${count:-?}" "$seconds"
done
printf '%-16s %12s\n' all "$total"
[ -z "$failed" ] || {
	echo "FAILED:$failed (target/fuzz/NAME.log, target/fuzz/failed)" >&2
	exit 1
}
