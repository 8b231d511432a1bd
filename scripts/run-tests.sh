#!/bin/sh
# Runs parts of the tests, and records their output, times and skipped tests in target/tests/.
# Prints neither the names nor the output of passing tests, except why one was skipped.
#
#   scripts/run-tests.sh all MAKE PART...      run all parts, then list failures, times and skips
#   scripts/run-tests.sh one PART COMMAND...   run one part; exits with the command's status
#
# Parts joined by `+` run side by side, and those joined by `,` one after the other; the output of
# each appears when the part ends.
#
# A test prints `skipped: REASON` if the machine lacks hardware, a privilege or a kernel feature,
# and `missing: REASON` if a tool is not installed or not built. Missing tools fail the run, unless
# SKIPS=allowed.
set -eu

directory=target/tests
mkdir -p "$directory"
times=$directory/times
skips=$directory/skips

# A log has the output of passing tests between `successes:` and `failures:` or the result.
brief() {
	sed -u -E -e '/^successes:$/,/^(failures:|test result)/{
			/^ *(skipped|missing): /p
			/^(failures:|test result)/!d
		}' -e '/^test .* \.\.\. (ok|ignored.*)$/d' -e '/^$/d'
}

# run_part PART COMMAND...
run_part() {
	part=$1
	shift
	begin=$(date +%s)
	# A pipe returns its last command's status, so a file carries the first one's.
	{ "$@" 2>&1 && echo 0 >"$directory/$part.status" || echo $? >"$directory/$part.status"; } \
		</dev/null | tee "$directory/$part.log" | brief
	echo "$part $(($(date +%s) - begin))" >>"$times"
	sed -nE "s/^ *((skipped|missing): .*)/$part: \1/p" "$directory/$part.log" >>"$skips"
	return "$(cat "$directory/$part.status")"
}

# Of failed parts: the compiler's errors, and the output of failed tests, which stands between two
# lines `failures:`.
repeat_failures() {
	while read -r part _; do
		[ "$(cat "$directory/$part.status")" = 0 ] ||
			awk -v part="$part" '/^failures:$/ { inside = !inside; if (inside) print part ":" }
				inside
				/^error/ { print part ": " $0 }' "$directory/$part.log"
	done <"$times"
}

action=$1
shift
case $action in
one)
	run_part "$@"
	exit
	;;
all) ;;
*)
	echo "$0: unknown action $action" >&2
	exit 2
	;;
esac

make=$1
shift
start=$(date +%s)
: >"$times"
: >"$skips"
rm -f "$directory"/*.status
trap 'trap - TERM; kill 0' INT TERM
for group; do
	case $group in
	*[+,]*)
		# Processes in the background of a shell ignore SIGINT; `env` restores it for the tests.
		for chain in $(echo "$group" | tr + ' '); do
			for part in $(echo "$chain" | tr , ' '); do
				env --default-signal "$0" one "$part" "$make" --no-print-directory "$part" \
					>"$directory/$part.brief" || :
				cat "$directory/$part.brief"
			done &
		done
		wait
		;;
	# Whoever started this may ignore signals, too.
	*) run_part "$group" env --default-signal "$make" --no-print-directory "$group" || : ;;
	esac
done

repeat_failures
awk '{ printf "%-24s %5d s\n", $1, $2 }' "$times"
printf '%-24s %5d s\n' all "$(($(date +%s) - start))"
sort "$skips" | uniq -c
echo "$(wc -l <"$skips") skips"
failed=$(for part in $(echo "$@" | tr +, '  '); do
	[ "$(cat "$directory/$part.status" 2>/dev/null)" = 0 ] || printf ' %s' "$part"
done)
if grep -q ' missing: ' "$skips" && [ "${SKIPS:-}" != allowed ]; then
	echo "tools are missing; install them (scripts/packages-*.txt) or set SKIPS=allowed" >&2
	failed="$failed tools"
fi
[ -z "$failed" ] || { echo "FAILED:$failed" >&2; exit 1; }
