# What every script of programs/ begins with: read by its `.`, with the arguments THREADS [SECONDS].
#
# A script starts its program with `measured` or `start`, under the LD_PRELOAD that the script itself was
# started with, and everything else - clients, tools, preparation - without it. At the end it prints the line
# `rate NUMBER UNIT`, where more is better. Whatever goes wrong ends it with another status than 0.
#
#   PROGRAMS_CACHE   a directory that keeps what takes long to prepare; without it, each run prepares anew
#   PROGRAMS_TMPDIR  where databases and results of one run go [default: /dev/shm, so that no disk is measured]
# shellcheck shell=sh
set -eu
export LC_ALL=C
PATH=$PATH:/usr/sbin

threads=${1:?"usage: $0 THREADS [SECONDS]"}
# shellcheck disable=SC2034 # read by the scripts
seconds=${2:-2}
# shellcheck disable=SC2034 # read by the scripts
workloads=${WORKLOADS:-$(dirname "$0")/../../../../target/workloads}
preload=${LD_PRELOAD-}
unset LD_PRELOAD

if [ -z "${PROGRAMS_TMPDIR-}" ]; then
	if [ -w /dev/shm ]; then PROGRAMS_TMPDIR=/dev/shm; else PROGRAMS_TMPDIR=/tmp; fi
fi
dir=$(mktemp -d "$PROGRAMS_TMPDIR/unconvoy-XXXXXX")
# Servers that give up root still have to get in.
chmod 755 "$dir"
server=

# A program that does not end when asked to is killed: a run that failed must leave nothing that disturbs the next.
clean_up() {
	trap - EXIT HUP INT TERM
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || :
		tries=0
		while [ "$tries" -lt 50 ] && kill -0 "$server" 2>/dev/null; do
			sleep 0.1
			tries=$((tries + 1))
		done
		kill -9 "$server" 2>/dev/null || :
	fi
	# Chromium's helpers outlive it for a moment, and would make their directory anew.
	tries=0
	while [ "$tries" -lt 20 ] && pgrep -f "$dir/" >/dev/null 2>&1; do
		sleep 0.1
		tries=$((tries + 1))
	done
	rm -rf "$dir"
}
trap 'status=$?; clean_up; exit $status' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
	printf '%s: %s\n' "$0" "$*" >&2
	[ ! -s "$dir/log" ] || tail -n 20 "$dir/log" >&2
	exit 1
}

# Runs what is measured, to its end.
measured() { env ${preload:+"LD_PRELOAD=$preload"} "$@"; }

# Starts the server that is measured; its output goes to $dir/log, its process id to $server.
start() {
	env ${preload:+"LD_PRELOAD=$preload"} "$@" >"$dir/log" 2>&1 </dev/null &
	server=$!
}

# Waits until a command succeeds, as long as the server lives and for 30 seconds at most.
await() {
	tries=0
	until "$@" >/dev/null 2>&1; do
		kill -0 "$server" 2>/dev/null || fail "the server ended at once"
		[ "$tries" -lt 600 ] || fail "the server does not answer"
		sleep 0.05
		tries=$((tries + 1))
	done
}

# Asks the server to end; one that crashed, then or before, makes the run fail.
stop() {
	kill "-${1:-TERM}" "$server"
	status=0
	wait "$server" || status=$?
	server=
	case $status in
	0 | 143) ;;
	*) fail "the server ended with status $status" ;;
	esac
}

# Prints the path of NAME in the cache, made by the command `make_NAME PATH` where it is not there yet. A
# preparation that is cut short leaves nothing under the final name.
prepared() {
	cached=${PROGRAMS_CACHE:-$dir}/$1
	if [ ! -e "$cached" ]; then
		mkdir -p "$(dirname "$cached")"
		"make_$1" "$cached.new" >"$dir/prepare" 2>&1 || {
			rm -rf "$cached.new"
			cat "$dir/prepare" >&2
			return 1
		}
		mv "$cached.new" "$cached"
	fi
	printf '%s\n' "$cached"
}

# Nanoseconds since some moment.
now() { date +%s%N; }

# Prints `rate` for COUNT things between two moments of now().
rate() { awk -v n="$1" -v from="$2" -v to="$3" -v unit="$4" 'BEGIN { printf "rate %.6g %s\n", n / ((to - from) / 1e9), unit }'; }
