#!/bin/sh
# Fetches the glibc of other Debian suites, for `make test-glibc`.
#
#   scripts/setup-glibc.sh SUITE...      into target/glibc/SUITE
#
# Keeps existing ones.
set -eu

scripts=$(cd "$(dirname "$0")" && pwd)
to=$scripts/../target/glibc
mkdir -p "$to"
to=$(cd "$to" && pwd)

for suite; do
	[ ! -e "$to/$suite" ] || continue
	. "$scripts/suites.sh"
	lists "$suite" glibc
	fetch "$suite" libc6
	unpack "$suite" "$work/libc"
	mv "$work/libc" "$to/$suite"
	rm -rf "$work"
done
