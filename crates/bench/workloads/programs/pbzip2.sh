#!/bin/sh
# pbzip2 compresses text in blocks of 100 kB with THREADS threads. SECONDS approximates the run time
# on two processors.
. "$(dirname "$0")/../program.sh"
. "$(dirname "$0")/../compress.sh"

compress $((seconds * 12)) 'bzip2 -d -c' pbzip2 -1 "-p$threads" -c
