#!/bin/sh
# Measures real programs with and without unconvoy: interleaved runs until the interval of each
# ratio is within 1.5 %, or RUNS of each configuration are spent. Takes an hour or two; an
# interrupted run continues with the next program. Requires a quiet machine, `make build`, and the
# packages in scripts/packages-programs.txt. Paths are relative to the repository's root, so that
# records hold no other path.
#
#   scripts/bench-programs.sh [OUTDIR [NAME...]]   OUTDIR: results (default .bench-programs);
#                                                  NAME: a script programs/NAME.sh
#   RUNS=9 THREADS=2,8 LOCKS=libc,default,tpmcs    most runs (40), thread counts, configurations
#   LOCKS=default,loiter+control                   a control: both are the same locks
#
# To publish: scripts/programs-table.py OUTDIR/*.json |
#             scripts/write-block.py docs/evaluation/programs.md table
set -eu

cd "$(dirname "$0")/.."
out=${1:-.bench-programs}
[ $# = 0 ] || shift
programs=crates/bench/workloads/programs
unconvoy=${UNCONVOY:-target/release/unconvoy}
cores=$(nproc)
threads=${THREADS:-$cores,$((4 * cores))}
mkdir -p "$out"
if [ $# = 0 ]; then
	for script in "$programs"/*.sh; do
		set -- "$@" "$(basename "$script" .sh)"
	done
fi

# Expensive preparations happen once, outside the measurement.
if [ -z "${PROGRAMS_CACHE-}" ]; then
	PROGRAMS_CACHE=$(mktemp -d)
	# PostgreSQL drops root privileges and must still enter the directory.
	chmod 755 "$PROGRAMS_CACHE"
	trap 'rm -rf "$PROGRAMS_CACHE"' EXIT
	trap 'exit 130' HUP INT TERM
fi
export PROGRAMS_CACHE
failed=
for name in "$@"; do
	script=$programs/$name.sh
	# The first sentence of the comment below the script's first line names the benchmark.
	what=$(sed -n '2,/^[^#]/s/^# //p' "$script" | tr '\n' ' ' |
		sed 's/\. .*//;s/THREADS/N/g')
	case $(head -c 400 "$out/$name.json" 2>/dev/null) in
	*'"complete": true'*)
		echo "$out/$name.json is complete; remove it to measure $name again" >&2
		continue
		;;
	esac
	ready=1
	for count in $(echo "$threads" | tr , ' '); do
		"$script" "$count" 1 >/dev/null || ready=
	done
	if [ -z "$ready" ] || ! "$unconvoy" compare --locks "${LOCKS:-libc,default}" \
		--threads "$threads" --runs "${RUNS:-40}" --precision .015 --timeout 60 \
		--metric '^rate ([0-9.e+]+)' --metric-name rate --title "$what" \
		--json "$out/$name.json" -- "$script" '{threads}' >"$out/$name.txt"; then
		failed="$failed $name"
	fi
done
if [ -n "$failed" ]; then
	echo "failed:$failed" >&2
	exit 1
fi
