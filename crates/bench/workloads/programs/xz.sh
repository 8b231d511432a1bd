#!/bin/sh
# xz compresses text in blocks of 512 KiB with THREADS threads. SECONDS approximates the run time on
# two processors.
. "$(dirname "$0")/../program.sh"
. "$(dirname "$0")/../compress.sh"

compress $((seconds * 12)) 'xz -d -c' xz -1 "-T$threads" --block-size=524288 -c
