#!/bin/sh
# Builds the command and the library of HEAD, with the settings of the tarball, in two clones at
# different paths, and compares the bytes. The tarball's own have other bytes: cargo chooses the
# features of shared dependencies by selection, and the tarball has two more packages.
set -eu
cd "$(dirname "$0")/../.."

work=$(mktemp -d "${TMPDIR:-/tmp}/unconvoy-reproducible.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
first=$work/first
second=$work/a/longer/path/to/the/second

# The clones need not fetch the C library again.
sysroot=target/tarball/sysroot
scripts/tarball/sysroot.sh "$PWD/$sysroot"
for clone in "$first" "$second"; do
	git clone --quiet . "$clone"
	mkdir -p "$clone/target/tarball"
	cp -a "$sysroot" "$clone/$sysroot"
done

build='. scripts/tarball/environment.sh && cargo build --release --locked -p unconvoy-cli \
	-p unconvoy-preload'
(cd "$first" && sh -euc "$build")
(umask 077 && cd "$second" && TZ=Asia/Tokyo LC_ALL=C sh -euc "$build")

differs=0
for file in unconvoy libunconvoy.so; do
	path=target/tarball/release/$file
	if cmp "$first/$path" "$second/$path"; then
		sha256sum "$first/$path" | sed "s# .*# $file#"
	else
		differs=1
	fi
done
[ "$differs" = 0 ] || exit 1
echo "two clones build the same bytes"
