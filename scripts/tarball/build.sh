#!/bin/sh
# Builds the tarball of `make tarball` in target/tarball: what the package `unconvoy` has, linked
# with an older glibc, and install.sh.
set -eu
cd "$(dirname "$0")/../.."
umask 022
. scripts/tarball/environment.sh

# shellcheck disable=SC2086 # one argument a package
cargo build --release --locked $(printf -- ' -p %s' $shipped)
cargo rustc --quiet --release --locked -p unconvoy --lib --features capi --crate-type staticlib

tree=$build/$name
files=$tree/files
rm -rf "$tree"
make --no-print-directory install-unconvoy RELEASE="$build/release" DESTDIR="$files" PREFIX=
rm "$files"/share/man/man1/unconvoy-bench* "$files"/share/man/man1/unconvoy-papers* \
	"$files"/share/man/man1/unconvoy-sim*
strip --strip-unneeded "$files"/bin/unconvoy "$files"/lib/unconvoy/*
strip --strip-debug "$files/lib/libunconvoy.a"

doc=$files/share/doc/unconvoy
mkdir -p "$doc"
cp LICENSE-MIT LICENSE-APACHE "$doc"
# shellcheck disable=SC2086 # one argument a package
scripts/licences.py $shipped >"$doc/licences.txt"
# shellcheck disable=SC2086 # one argument a package
scripts/sbom.py $shipped >"$doc/unconvoy.cdx.json"
cp scripts/tarball/install.sh "$tree"

tar --directory "$build" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
	--numeric-owner --mode=u=rwX,go=rX --create "$name" | gzip -9n >"$build/$name.tar.gz"
echo "target/tarball/$name.tar.gz"
