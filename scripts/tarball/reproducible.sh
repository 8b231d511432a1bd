#!/bin/sh
# Builds the tarball of HEAD in two clones, at different paths and with different settings, and
# compares the bytes of the command, the library and the whole tarball.
set -eu
cd "$(dirname "$0")/../.."

work=$(mktemp -d "${TMPDIR:-/tmp}/unconvoy-reproducible.XXXXXX")
trap 'rm -rf "$work"' EXIT
first=$work/first
second=$work/a/longer/path/to/the/second

# The clones need not fetch the C library and the tools again.
sysroot=target/tarball/sysroot
scripts/tarball/sysroot.sh "$PWD/$sysroot"
for clone in "$first" "$second"; do
	git clone --quiet . "$clone"
	mkdir -p "$clone/target/tarball"
	cp -a "$sysroot" "$clone/$sysroot"
	[ ! -d target/tools ] || cp -a target/tools "$clone/target/tools"
done

(cd "$first" && scripts/tarball/build.sh)
(umask 077 && cd "$second" && TZ=Asia/Tokyo LC_ALL=C CARGO_BUILD_JOBS=1 scripts/tarball/build.sh)

name=$(cd "$first/target/tarball" && echo unconvoy-*.tar.gz)
tree=${name%.tar.gz}/files
differs=0
for file in "$tree/bin/unconvoy" "$tree/lib/unconvoy/libunconvoy.so" "$name"; do
	cmp "$first/target/tarball/$file" "$second/target/tarball/$file" || differs=1
	(cd "$first/target/tarball" && sha256sum "$file")
done
if [ "$differs" = 1 ]; then
	diff -rq "$first/target/tarball/$tree" "$second/target/tarball/$tree" >&2 || :
	exit 1
fi
echo "two clones build the same bytes"
