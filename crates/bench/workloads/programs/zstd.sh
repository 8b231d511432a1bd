#!/bin/sh
# zstd compresses text in jobs of 512 KiB with THREADS threads. SECONDS approximates the run time on
# two processors.
. "$(dirname "$0")/../program.sh"
. "$(dirname "$0")/../compress.sh"

compress $((seconds * 32)) 'zstd -d -q -c' zstd -9 "-T$threads" -B524288 -q -c
