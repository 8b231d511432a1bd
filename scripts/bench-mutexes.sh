#!/bin/sh
# Measures the mutexes of the Rust and C libraries beside others, four minutes on a quiet machine.
# The record goes to $1/mutexes.json, its tables to $1/mutexes.md.
set -eu

out=$1
# The variable overrides a user's configuration of cargo.
built=${CARGO_TARGET_DIR:-target}
export CARGO_TARGET_DIR="$built"
scripts/setup.sh scripts/packages-mutexes.txt
cargo rustc --quiet --release -p unconvoy --lib --features capi --crate-type staticlib
cargo build --quiet --release -p unconvoy-bench --example mutexes
g++ -std=c++17 -O2 -pthread -Wall -Wextra -Icrates/bench/workloads \
	crates/bench/workloads/cpp_mutex.cc -o "$built/cpp_mutex" \
	"$built/release/libunconvoy.a" -labsl_synchronization -ldl -lm
"$built/release/examples/mutexes" --cpp "$built/cpp_mutex" --out "$out/mutexes"
