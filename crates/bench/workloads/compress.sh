# Functions of the compressors' scripts. Source it after program.sh.
# shellcheck shell=sh

# Write deterministic text: words from a small alphabet, neither random nor constant. The text
# repeats every 2 MiB, a distance larger than the compressors' blocks.
make_text() {
	awk 'BEGIN {
		state = 1
		for (bytes = 0; bytes < 2 * 1048576; bytes += length(word)) {
			state = (state * 69069 + 12345) % 4294967296
			n = int(state / 65536) % 4096
			word = sprintf("%x%d ", n, n * n % 977)
			printf "%s", word
		}
	}' >"$1.unit"
	for _ in 1 2 3 4 5 6 7 8; do cat "$1.unit"; done >"$1.more"
	for _ in 1 2 3 4 5 6 7 8; do cat "$1.more"; done >"$1"
	rm "$1.unit" "$1.more"
}

# compress MIB EXPAND COMMAND...: compress with COMMAND, from standard input to standard output.
# These programs compress blocks of a fixed size, so the result must equal that of the first run
# under libc, which EXPAND has verified.
compress() {
	mib=$1
	expand=$2
	shift 2
	text=$(prepared text)
	copied=0
	while [ "$copied" -lt "$mib" ]; do
		cat "$text"
		copied=$((copied + 128))
	done | head -c "${mib}M" >"$dir/in"
	reference=${PROGRAMS_CACHE:-$dir}/$(basename "$0" .sh)-$mib-$threads
	if [ ! -e "$reference" ]; then
		"$@" <"$dir/in" >"$dir/reference"
		$expand <"$dir/reference" | cmp - "$dir/in" || fail "expands to different data under libc"
		# The cache may be in another file system, where a move copies.
		mv "$dir/reference" "$reference.new"
		mv "$reference.new" "$reference"
	fi
	from=$(now)
	measured "$@" <"$dir/in" >"$dir/out"
	to=$(written "$dir/out")
	cmp "$dir/out" "$reference" || fail "compresses to different data"
	rate "$mib" "$from" "$to" MiB/s
}
