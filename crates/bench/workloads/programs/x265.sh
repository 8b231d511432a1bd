#!/bin/sh
# x265 encodes a film with a pool of THREADS threads. SECONDS approximates the run time on two
# processors.
. "$(dirname "$0")/../program.sh"
. "$(dirname "$0")/../film.sh"

film=$(prepared film)
frames=$((seconds * 250))
encode "$frames" x265 --y4m --input "$film" --frames "$frames" --preset ultrafast \
	--pools "$threads" --frame-threads 3 --no-info --output "$dir/out"
