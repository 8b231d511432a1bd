#!/bin/sh
# pigz compresses text in blocks of 128 KiB with THREADS threads. SECONDS approximates the run time
# on two processors.
. "$(dirname "$0")/../program.sh"
. "$(dirname "$0")/../compress.sh"

compress $((seconds * 24)) 'pigz -d -c' pigz -6 -m -p "$threads" -c
