#!/bin/sh
# Fetches the parts of 'unconvoy predict --kernel' that Debian 12 lacks: QEMU's system mode with
# plug-in interface version 4 (10.0, from bookworm-backports) and a stock Debian kernel (the newest
# cloud kernel of trixie-backports, with BTF and CONFIG_SCHED_CLASS_EXT).
#
#   scripts/setup-kernel.sh [DIRECTORY]     default: target/kernel
#
# Unpacks packages into DIRECTORY with a private apt configuration and installs only missing shared
# libraries. Installing bookworm-backports' QEMU would upgrade qemu-user to a build without
# plug-ins. Creates DIRECTORY/qemu (unless PATH has a suitable QEMU), DIRECTORY/vmlinuz,
# DIRECTORY/modules and DIRECTORY/config. Keeps existing parts.
set -eu

to=${1:-$(dirname "$0")/../target/kernel}
mkdir -p "$to"
to=$(cd "$to" && pwd)

fail() {
	echo "setup: $1" >&2
	exit 1
}

# Whether an executable is a QEMU with a plug-in interface that reads registers.
has_plugins() {
	version=$("$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p')
	[ "${version:-0}" -ge 10 ] && "$1" -help 2>/dev/null | grep -q -e '^-plugin'
}

found=$(command -v qemu-system-x86_64 || true)
need_qemu=
if [ -x "$to/qemu/usr/bin/qemu-system-x86_64" ]; then :;
elif [ -n "$found" ] && has_plugins "$found"; then :;
else need_qemu=yes; fi
need_kernel=
[ -s "$to/vmlinuz" ] && [ -d "$to/modules" ] || need_kernel=yes
[ -n "$need_qemu$need_kernel" ] || exit 0

command -v apt-get >/dev/null ||
	fail "apt-get is missing; use unconvoy predict --kernel with --qemu, IMAGE and --modules"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -s "$keys" ] || fail "$keys is missing; run apt-get install debian-archive-keyring"

# The machine's Debian mirror, from either format of apt's lists of sources.
mirror=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
	sed -n 's|^URIs: *\(https\?://[^ ]*/debian\)/* *$|\1|p' | head -n 1)
[ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
	sed -n 's|^deb  *\(\[[^]]*\]  *\)\{0,1\}\(https\{0,1\}://[^ ]*/debian\)/* .*|\2|p' | head -n 1)
[ -n "$mirror" ] || mirror=http://deb.debian.org/debian

work=$(mktemp -d "$to/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Runs apt for one suite with its own lists and cache. apt's sandbox user cannot write here.
apt() {
	suite=$1
	shift
	mkdir -p "$work/$suite/lists/partial" "$work/$suite/cache/archives/partial"
	printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$suite" >"$work/$suite/sources.list"
	"$@" -o Dir::State::lists="$work/$suite/lists" -o Dir::Cache="$work/$suite/cache" \
		-o Dir::Etc::sourcelist="$work/$suite/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::status=/dev/null -o APT::Architecture=amd64 \
		-o APT::Architectures=amd64 -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::Retries=2
}

# The cause of a failure is apt's first message.
why() {
	sed -n 's/^[EW]: //p' "$work/log" | head -n 1
}

lists() {
	echo "setup: looking for $2 in $1" >&2
	apt "$1" apt-get -qq -o APT::Update::Error-Mode=any update >"$work/log" 2>&1 ||
		fail "cannot fetch the list of $1 from $mirror ($(why)); check the network"
}

fetch() {
	suite=$1
	shift
	(cd "$work/$suite" && apt "$suite" apt-get -qq download "$@" >"$work/log" 2>&1) ||
		fail "cannot fetch $* of $suite from $mirror ($(why))"
}

unpack() {
	mkdir -p "$2"
	for package in "$work/$1"/*.deb; do
		dpkg-deb -x "$package" "$2" ||
			fail "cannot unpack $(basename "$package"); check the free space in $to"
	done
	rm -f "$work/$1"/*.deb
}

if [ -n "$need_qemu" ]; then
	lists bookworm-backports "QEMU"
	fetch bookworm-backports qemu-system-x86 qemu-system-common qemu-system-data
	unpack bookworm-backports "$work/qemu"
	# The release's own firmware: the BIOS, and the network cards' boot code.
	lists bookworm "the guest's firmware"
	fetch bookworm seabios ipxe-qemu
	unpack bookworm "$work/qemu"
	if ldd "$work/qemu/usr/bin/qemu-system-x86_64" | grep -q 'not found'; then
		"$(dirname "$0")/setup.sh" "$(dirname "$0")/packages-qemu.txt"
	fi
	mv "$work/qemu" "$to/qemu"
fi

if [ -n "$need_kernel" ]; then
	lists trixie-backports "a kernel"
	# The newest kernel. Later releases split it into several packages.
	kernel=$(apt trixie-backports apt-cache --no-all-versions show linux-image-cloud-amd64 |
		sed -n 's/^Depends:.*\(linux-image-[^ ,]*-cloud-amd64\).*/\1/p' | head -n 1)
	[ -n "$kernel" ] || fail "trixie-backports has no linux-image-cloud-amd64"
	version=${kernel#linux-image-}
	packages=$kernel
	for part in linux-binary linux-modules linux-base; do
		if apt trixie-backports apt-cache --no-all-versions show "$part-$version" 2>/dev/null |
			grep -q '^Filename:'; then
			packages="$packages $part-$version"
		fi
	done
	# shellcheck disable=SC2086 # one argument a package
	fetch trixie-backports $packages
	unpack trixie-backports "$work/kernel"
	image=$(find "$work/kernel" -name "vmlinuz*" -type f -size +1M | head -n 1)
	modules=$(find "$work/kernel" -type d -path "*lib/modules/$version" | head -n 1)
	config=$(find "$work/kernel" -type f \
		\( -name "config-$version" -o -path "*/modules/$version/config" \) | head -n 1)
	[ -n "$image" ] && [ -n "$modules" ] ||
		fail "no vmlinuz or no modules in $packages of trixie-backports"
	for option in CONFIG_SCHED_CLASS_EXT CONFIG_DEBUG_INFO_BTF; do
		[ -z "$config" ] || grep -q "^$option=y" "$config" ||
			fail "$kernel was built without $option"
	done
	# Copy the files, because both may lie inside the modules' directory.
	cp "$image" "$work/vmlinuz"
	[ -z "$config" ] || cp "$config" "$to/config"
	rm -rf "$to/modules"
	mv "$modules" "$to/modules"
	printf '%s\n' "$version" >"$to/version"
	mv "$work/vmlinuz" "$to/vmlinuz"
fi
