#!/bin/sh
# Unpacks the C library of Debian 11 (glibc 2.31), with its headers, into a new folder. Programs
# that are linked with it need no newer symbols. Needs apt-get, but not root.
#
#   scripts/tarball/sysroot.sh DIRECTORY
set -eu

[ $# = 1 ] || { echo "usage: scripts/tarball/sysroot.sh DIRECTORY" >&2; exit 2; }
[ ! -d "$1" ] || exit 0
for tool in apt-get dpkg-deb; do
	command -v "$tool" >/dev/null ||
		{ echo "sysroot: $tool is missing: build on Debian or Ubuntu" >&2; exit 1; }
done

site=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Codename: bookworm' |
	head -1)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$(dirname "$1")"
work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root"
: >"$work/status"
echo "deb [arch=amd64 signed-by=$keys] ${site:-http://deb.debian.org/debian} bullseye main" \
	>"$work/sources"

# apt-get with a state of its own, which knows only this release.
apt() {
	apt-get -qq -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=- \
		-o Dir::State="$work/state" -o Dir::State::Status="$work/status" \
		-o Dir::Cache="$work/cache" -o APT::Architecture=amd64 -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		"$@"
}
apt update
(cd "$work" && apt download libc6 libc6-dev libcrypt1 libcrypt-dev libgcc-s1 linux-libc-dev)
for package in "$work"/*.deb; do
	dpkg-deb -x "$package" "$work/root"
done

# Absolute links, such as libdl.so's, would lead to this machine's libraries.
find "$work/root" -type l -lname '/*' | while read -r link; do
	ln -sfr "$work/root$(readlink "$link")" "$link"
done
mv "$work/root" "$1"
