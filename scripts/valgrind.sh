#!/bin/sh
# Runs the workload programs under valgrind with the library preloaded, on small inputs. Each
# program checks itself and fails if two threads share a critical section or an item is lost.
#
# A finding of memcheck is a failure. helgrind and DRD know only the pthread functions that they
# replace themselves, so every lock of this library looks like a race to them. Their findings are
# ignored; the programs must end with correct results.
set -eu

library=$(realpath "$1")
programs=$2
here=$(dirname "$0")
command -v valgrind >/dev/null || {
	echo "missing: valgrind is not installed (apt-get install valgrind)"
	exit 0
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' HUP INT TERM
failed=0
check() {
	tool=$1
	errors=$2
	shift 2
	if LD_PRELOAD=$library timeout 120 valgrind --quiet --tool="$tool" \
		--error-exitcode="$errors" --fair-sched=yes \
		--suppressions="$here/valgrind.supp" --log-file="$log" "$@" >/dev/null </dev/null; then
		echo "valgrind $tool: $(basename "$*"): ok"
	else
		echo "valgrind $tool: $(basename "$*"): FAILED, exit status $?"
		head -n 60 "$log"
		failed=1
	fi
}

check memcheck 99 "$programs/counter" --threads 4 --seconds 0.2
check memcheck 99 "$programs/condvar" --mode queue --threads 2 --seconds 0.2
check helgrind 0 "$programs/counter" --threads 4 --seconds 0.1
check drd 0 "$programs/counter" --threads 4 --seconds 0.1
exit $failed
