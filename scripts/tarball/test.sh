#!/bin/sh
# Installs the tarball of `make tarball` in a fresh Debian 12 and a fresh Debian 13, as another user
# and as root, runs the README's commands there, and removes it. In a fresh Debian 11, whose glibc
# is too old, install.sh must refuse. The recipe for a container image is tried in Debian 12. Needs
# root, and the package debootstrap.
set -eu
cd "$(dirname "$0")/../.."
. scripts/tarball/environment.sh

fail() {
	echo "test-tarball: $*" >&2
	exit 1
}

# The programs and libraries need no newer glibc than install.sh demands.
files=$build/$name/files
oldest=$(sed -n 's/.*glibc \(2\.[0-9]*\) or later.*/\1/p' scripts/tarball/install.sh | head -1)
for file in bin/unconvoy lib/unconvoy/libunconvoy.so lib/unconvoy/unconvoy-top \
	lib/unconvoy/unconvoy-png; do
	needed=$(objdump -T "$files/$file" | sed -n 's/.*GLIBC_\(2\.[0-9]*\).*/\1/p' |
		sort -Vu | tail -1)
	echo "$file needs glibc $needed"
	[ "$(printf '%s\n%s\n' "$oldest" "$needed" | sort -V | tail -1)" = "$oldest" ] ||
		fail "$file needs glibc $needed, and install.sh allows $oldest"
done

# The bill of materials has every crate of the list of licences.
doc=$files/share/doc/unconvoy
linked=$(sed -n 's/^\([^ ]*\) \([0-9][^ ]*\): .*/\1@\2/p' "$doc/licences.txt" | sort -u)
[ "$(echo "$linked" | wc -l)" -ge 50 ] || fail "licences.txt lists too few crates"
echo "$linked" | while read -r crate; do
	grep -q "\"pkg:cargo/$crate[?\"]" "$doc/unconvoy.cdx.json" || fail "no $crate in the SBOM"
done
for file in licences.txt unconvoy.cdx.json; do
	grep -q "DejaVu Sans" "$doc/$file" || fail "no font in $file"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/unconvoy-tarball.XXXXXX")
root=$work/root
trap 'umount "$root/proc" 2>/dev/null || :; rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM

# Programs for the oldest Debian: the documentation's server, and one with the static library.
# shellcheck disable=SC2086 # one argument a flag
cc $CFLAGS -O2 -pthread -o "$work/server" crates/cli/tests/docs/server.c $LDFLAGS
# shellcheck disable=SC2086
cc $CFLAGS -I"$files/include" -o "$work/counter" crates/locks/examples/cmake/counter.c $LDFLAGS \
	-L"$files/lib" -lunconvoy -lpthread -ldl -lm

# The README's commands that are meant to run anywhere.
awk '/^<!--/ { skip = 1 } /^```/ { on = /^```sh$/ && !skip; if (!on) skip = 0; next } on' \
	README.md >"$work/commands"
[ "$(grep -c '^unconvoy' "$work/commands")" -ge 3 ] || fail "the README has no commands"

site=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Codename: bookworm' |
	head -1)
# Makes a fresh Debian in $root, with the unpacked tarball and a user's folder in /try.
prepare() {
	debootstrap --variant=minbase "$1" "$root" "${site:-http://deb.debian.org/debian}" \
		>"$work/debootstrap.log" || fail "no Debian $1: $(tail -1 "$work/debootstrap.log")"
	mount -t proc proc "$root/proc"
	mkdir "$root/try" "$root/try/user"
	tar -C "$root/try" -xzf "$build/$name.tar.gz"
	cp "$work/server" "$work/counter" "$work/commands" "$root/try/user"
	cp "$work/server" "$root/try/user/program"
	chown -R 65534:65534 "$root/try/user"
	install=/try/$name/install.sh
	all_paths >"$work/before"
}

as_root() {
	chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin "$@"
}

as_user() {
	chroot --userspec=65534:65534 "$root" env -i HOME=/try/user \
		PATH=/try/user/.local/bin:/usr/bin:/bin "$@"
}

all_paths() {
	as_root find / -xdev ! -path '/proc/*' ! -path '/try/*' | sort
}

left_nothing() {
	all_paths | diff "$work/before" - || fail "left behind"
}

# Runs a command that must fail with one line, which has the words `words`.
refuses() {
	words=$1
	shift
	! "$@" >"$work/output" 2>&1 || fail "not refused: $*"
	cat "$work/output"
	[ "$(grep -c . "$work/output")" = 1 ] && grep -q -e "$words" "$work/output" ||
		fail "no message with '$words': $*"
	left_nothing
}

# Runs the installed command, as `as_user` or `as_root`.
try_commands() {
	"$1" unconvoy --version --verbose
	"$1" unconvoy doctor
	"$1" sh -euc 'cd /try/user && . ./commands && ./counter' >"$work/output" ||
		fail "a command of the README fails: $(cat "$work/output")"
	"$1" unconvoy run -- grep -q libunconvoy /proc/self/maps || fail "run preloads nothing"
	as_root sh -euc 'cd /try/user && rm -f locks.* && ls -A' >"$work/output"
}

# An upgrade that cannot write every file leaves the installed version as it is.
try_failing_upgrade() {
	mkdir "$root/usr/local/lib/unconvoy/unconvoy-top.new"
	! as_root "$install" >"$work/output" 2>&1 || fail "not refused: unconvoy-top cannot be written"
	cat "$work/output"
	rmdir "$root/usr/local/lib/unconvoy/unconvoy-top.new"
	as_root unconvoy --version
	[ -z "$(find "$root/usr/local" -name '*.new')" ] || fail "the failing upgrade left files"
}

# The recipe of docs/how-to/image.md, with this Debian for the image.
try_image() {
	mkdir "$work/context"
	cp "$build/$name.tar.gz" "$work/server" "$work/context"
	unshare --mount scripts/tarball/image.py "$root" "$work/context"
}

try_debian() {
	prepare "$1"
	refuses "unknown option" as_root "$install" --wrong
	refuses "nothing to remove" as_root "$install" --uninstall
	refuses "run as root" as_user "$install"

	as_user sh -c "$install --prefix ~/.local"
	as_user grep -qx 'prefix=/try/user/.local' /try/user/.local/lib/pkgconfig/unconvoy.pc
	as_user sh -c "cd && $install --prefix ./.local/" # an upgrade, by another path of the folder
	try_commands as_user
	as_user sh -c "$install --prefix ~/.local --uninstall"
	[ ! -e "$root/try/user/.local" ] || fail "left behind: $(find "$root/try/user/.local")"

	as_root "$install"
	as_root "$install" >/dev/null # as an upgrade
	try_failing_upgrade
	try_commands as_root
	as_root "$install" --uninstall
	left_nothing
	echo "$1: the tarball installs, works and leaves nothing"
	[ "$1" != bookworm ] || try_image
	remove_debian
}

remove_debian() {
	umount "$root/proc"
	rm -rf "$root"
}

prepare bullseye
refuses "glibc $oldest or later" as_root "$install"
echo "bullseye: install.sh refuses"
remove_debian
try_debian bookworm
try_debian trixie
