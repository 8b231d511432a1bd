# Common start of every script of programs/: source it with the arguments THREADS [SECONDS].
#
# A script starts its program with `measured` or `start`, under the script's own LD_PRELOAD, and
# everything else (clients, tools, preparation) without it. At the end it prints the line
# `rate NUMBER UNIT`, where more is better. Any failure ends it with a non-zero status.
#
#   PROGRAMS_CACHE   directory for results of slow preparations; without it, each run prepares again
#   PROGRAMS_TMPDIR  directory for one run's files [default: /dev/shm, to measure no disk]
#   PROGRAMS_UNDER   command that runs the program, such as `unconvoy profile --text FILE --`
# shellcheck shell=sh
set -eu
export LC_ALL=C
PATH=$PATH:/usr/sbin

threads=${1:?"usage: $0 THREADS [SECONDS]"}
# shellcheck disable=SC2034 # used by the scripts
seconds=${2:-2}
# shellcheck disable=SC2034 # used by the scripts
workloads=${WORKLOADS:-$(dirname "$0")/../../../../target/workloads}
preload=${LD_PRELOAD-}
unset LD_PRELOAD

if [ -z "${PROGRAMS_TMPDIR-}" ]; then
	if [ -w /dev/shm ]; then PROGRAMS_TMPDIR=/dev/shm; else PROGRAMS_TMPDIR=/tmp; fi
fi
dir=$(mktemp -d "$PROGRAMS_TMPDIR/unconvoy-XXXXXX")
# Servers that give up root must still be able to enter.
chmod 755 "$dir"
server=

# Kill a program that does not end on request: a failed run must not disturb the next one.
clean_up() {
	trap - EXIT HUP INT TERM
	# `make_NAME` runs in a subshell, whose variables do not come here.
	[ ! -f "$dir/preparing" ] || server="$server $(cat "$dir/preparing")"
	for process in $server; do
		kill "$process" 2>/dev/null || :
		tries=0
		while [ "$tries" -lt 50 ] && kill -0 "$process" 2>/dev/null; do
			sleep 0.1
			tries=$((tries + 1))
		done
		kill -9 "$process" 2>/dev/null || :
	done
	# Chromium's helpers outlive it for a moment, and would create their directory again.
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

# Run the measured program to its end.
# shellcheck disable=SC2086 # words
measured() { env ${preload:+"LD_PRELOAD=$preload"} ${PROGRAMS_UNDER-} "$@"; }

# Start the measured server, with its output in $dir/log and its process id in $server.
start() {
	# shellcheck disable=SC2086 # words
	env ${preload:+"LD_PRELOAD=$preload"} ${PROGRAMS_UNDER-} "$@" >"$dir/log" 2>&1 </dev/null &
	server=$!
}

# Wait until a command succeeds, while the server lives and for 30 seconds at most.
await() {
	tries=0
	until "$@" >/dev/null 2>&1; do
		kill -0 "$server" 2>/dev/null || fail "the server ended during startup"
		[ "$tries" -lt 600 ] || fail "the server did not answer within 30 s"
		sleep 0.05
		tries=$((tries + 1))
	done
}

# Ask the server to end. The run fails if it crashed, now or before.
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

# Print the path of NAME in the cache. If it does not exist, `make_NAME PATH` creates it; PATH does
# not exist before. An interrupted preparation leaves nothing under the final name, and no server
# whose process id is in $dir/preparing.
prepared() {
	cached=${PROGRAMS_CACHE:-$dir}/$1
	if [ ! -e "$cached" ]; then
		mkdir -p "$(dirname "$cached")"
		rm -rf "$cached.new"
		"make_$1" "$cached.new" >"$dir/prepare" 2>&1 || {
			rm -rf "$cached.new"
			cat "$dir/prepare" >&2
			return 1
		}
		mv "$cached.new" "$cached"
	fi
	printf '%s\n' "$cached"
}

# Nanoseconds since 1970.
now() { date +%s%N; }

# The time of the last write to FILE, as now(). The command in PROGRAMS_UNDER may still work after
# the program's end.
written() { date -r "$1" +%s%N; }

# Print `rate` for COUNT items between two such times.
rate() {
	awk -v n="$1" -v from="$2" -v to="$3" -v unit="$4" \
		'BEGIN { printf "rate %.6g %s\n", n / ((to - from) / 1e9), unit }'
}
