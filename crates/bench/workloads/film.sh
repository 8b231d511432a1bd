# Functions of the video encoders' scripts. Source it after program.sh.
# shellcheck shell=sh

# Create 20 seconds of 640x360 video with varied motion: a zoom into the Mandelbrot set, with noise.
make_film() {
	ffmpeg -nostdin -loglevel error -f lavfi -i mandelbrot=size=640x360:rate=30 \
		-vf 'noise=alls=8:all_seed=1' -frames:v 600 -pix_fmt yuv420p -f yuv4mpegpipe "$1"
}

# encode FRAMES COMMAND...: COMMAND encodes FRAMES frames to $dir/out. The check counts frames,
# because the bytes may differ between runs (x265's do, also under libc).
encode() {
	frames=$1
	shift
	[ "$frames" -le 600 ] || fail "the film has 600 frames, not $frames: take fewer SECONDS"
	from=$(now)
	measured "$@" >"$dir/log" 2>&1 || fail "the encoder failed"
	to=$(written "$dir/out")
	decoded=$(ffprobe -v error -count_packets -select_streams v \
		-show_entries stream=nb_read_packets -of csv=p=0 "$dir/out" 2>"$dir/log" | head -n 1)
	[ "$decoded" = "$frames" ] && [ ! -s "$dir/log" ] || fail "decoded $decoded of $frames frames"
	rate "$frames" "$from" "$to" frames/s
}
