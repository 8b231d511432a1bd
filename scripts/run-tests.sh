#!/bin/sh
# Runs one part of the tests, and keeps how long it took and what was skipped in target/tests/.
#
#   scripts/run-tests.sh begin              forgets what earlier parts left
#   scripts/run-tests.sh PART COMMAND...    runs a part; its status is the command's
#   scripts/run-tests.sh end                lists times and skips
#
# A test prints `skipped: REASON` where the machine lacks something (hardware, a privilege, a kernel
# feature), and `missing: REASON` where a tool is not installed or not built. Missing tools fail
# `end`, unless SKIPS=allowed.
set -eu

directory=target/tests
mkdir -p "$directory"
times=$directory/times
skips=$directory/skips

case $1 in
begin)
	: >"$times"
	: >"$skips"
	exit 0
	;;
end)
	total=$(awk '{ total += $2 } END { print total + 0 }' "$times")
	awk '{ printf "%-24s %5d s\n", $1, $2 }' "$times"
	printf '%-24s %5d s\n' all "$total"
	sort "$skips" | uniq -c
	echo "$(wc -l <"$skips") skips"
	if grep -q ' missing: ' "$skips" && [ "${SKIPS:-}" != allowed ]; then
		echo "tools are missing: install them (scripts/packages-*.txt), or set SKIPS=allowed" >&2
		exit 1
	fi
	exit 0
	;;
esac

part=$1
shift
log=$directory/$part.log
begin=$(date +%s)
status=$directory/$part.status
# A pipe's status is its last command's: the first one's goes by way of a file.
{ "$@" 2>&1 && echo 0 >"$status" || echo $? >"$status"; } </dev/null | tee "$log"
echo "$part $(($(date +%s) - begin))" >>"$times"
sed -nE "s/^ *((skipped|missing): .*)/$part: \1/p" "$log" >>"$skips"
exit "$(cat "$status")"
