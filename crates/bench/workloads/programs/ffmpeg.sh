#!/bin/sh
# ffmpeg scales a film and encodes it with x264 in THREADS threads. SECONDS approximates the run
# time on two processors.
. "$(dirname "$0")/../program.sh"
. "$(dirname "$0")/../film.sh"

film=$(prepared film)
frames=$((seconds * 500))
encode "$frames" ffmpeg -nostdin -loglevel error -stream_loop -1 -i "$film" -frames:v "$frames" \
	-vf scale=512:288 -c:v libx264 -preset veryfast -threads "$threads" -f h264 "$dir/out"
