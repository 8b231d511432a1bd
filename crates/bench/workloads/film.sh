# What the scripts of the video encoders share: read by their `.`, after program.sh.
# shellcheck shell=sh

# Ten seconds of 640x360 that move in every way: a zoom into the Mandelbrot set with noise over it.
make_film() {
	ffmpeg -nostdin -loglevel error -f lavfi -i mandelbrot=size=640x360:rate=30 -vf 'noise=alls=8:all_seed=1' -frames:v 300 \
		-pix_fmt yuv420p -f yuv4mpegpipe "$1"
}

# encode FRAMES COMMAND...: COMMAND encodes FRAMES frames to $dir/out. What it writes depends on the number of threads
# and on nothing else, so the bytes are those of the first run under libc.
encode() {
	frames=$1
	shift
	reference=${PROGRAMS_CACHE:-$dir}/$(basename "$0" .sh)-$frames-$threads
	if [ ! -e "$reference" ]; then
		"$@" >"$dir/log" 2>&1 || fail "does not encode, under libc"
		mv "$dir/out" "$reference"
	fi
	from=$(now)
	measured "$@" >"$dir/log" 2>&1 || fail "does not encode"
	to=$(now)
	cmp "$dir/out" "$reference" || fail "encodes to other bytes"
	rate "$frames" "$from" "$to" frames/s
}
