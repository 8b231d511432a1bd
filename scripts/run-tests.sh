#!/bin/sh
# Runs one part of the tests, and records its output, time and skipped tests in target/tests/.
# Prints neither the names nor the output of passing tests, except why one was skipped.
#
#   scripts/run-tests.sh begin              discard earlier results
#   scripts/run-tests.sh PART COMMAND...    run a part; exits with the command's status
#   scripts/run-tests.sh end                repeat failures; list times and skipped tests
#
# A test prints `skipped: REASON` if the machine lacks hardware, a privilege or a kernel feature,
# and `missing: REASON` if a tool is not installed or not built. Missing tools fail `end`, unless
# SKIPS=allowed.
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
	# Of a failed part: the compiler's errors, and the output of failed tests, which stands between
	# two lines `failures:`.
	while read -r part _; do
		[ "$(cat "$directory/$part.status")" = 0 ] ||
			awk -v part="$part" '/^failures:$/ { inside = !inside; if (inside) print part ":" }
				inside
				/^error/ { print part ": " $0 }' "$directory/$part.log"
	done <"$times"
	total=$(awk '{ total += $2 } END { print total + 0 }' "$times")
	awk '{ printf "%-24s %5d s\n", $1, $2 }' "$times"
	printf '%-24s %5d s\n' all "$total"
	sort "$skips" | uniq -c
	echo "$(wc -l <"$skips") skips"
	if grep -q ' missing: ' "$skips" && [ "${SKIPS:-}" != allowed ]; then
		echo "tools are missing; install them (scripts/packages-*.txt) or set SKIPS=allowed" >&2
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
# A log has the output of passing tests between `successes:` and `failures:` or the result.
brief() {
	sed -u -E -e '/^successes:$/,/^(failures:|test result)/{
			/^ *(skipped|missing): /p
			/^(failures:|test result)/!d
		}' -e '/^test .* \.\.\. (ok|ignored.*)$/d' -e '/^$/d'
}

# A pipe returns its last command's status, so a file carries the first one's.
{ "$@" 2>&1 && echo 0 >"$status" || echo $? >"$status"; } </dev/null | tee "$log" | brief
echo "$part $(($(date +%s) - begin))" >>"$times"
sed -nE "s/^ *((skipped|missing): .*)/$part: \1/p" "$log" >>"$skips"
exit "$(cat "$status")"
