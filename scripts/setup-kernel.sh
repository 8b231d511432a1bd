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
scripts=$(cd "$(dirname "$0")" && pwd)

# Whether an executable is a QEMU with a plug-in interface that reads registers.
has_plugins() {
	version=$("$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p')
	[ "${version:-0}" -ge 10 ] && "$1" -help 2>/dev/null | grep -q -e '^-plugin'
}

found=$(command -v qemu-system-x86_64 || true)
need_qemu=
if has_plugins "$to/qemu/usr/bin/qemu-system-x86_64"; then :;
elif [ -n "$found" ] && has_plugins "$found"; then :;
else need_qemu=yes; fi
need_kernel=
[ -s "$to/vmlinuz" ] && [ -d "$to/modules" ] || need_kernel=yes
[ -n "$need_qemu$need_kernel" ] || exit 0

without_apt="use unconvoy predict --kernel with --qemu, IMAGE and --modules"
. "$scripts/suites.sh"

if [ -n "$need_qemu" ]; then
	lists bookworm-backports "QEMU"
	fetch bookworm-backports qemu-system-x86 qemu-system-common qemu-system-data
	unpack bookworm-backports "$work/qemu"
	# The release's own firmware: the BIOS, and the network cards' boot code.
	lists bookworm "the guest's firmware"
	fetch bookworm seabios ipxe-qemu
	unpack bookworm "$work/qemu"
	if ldd "$work/qemu/usr/bin/qemu-system-x86_64" | grep -q 'not found'; then
		"$scripts/setup.sh" "$scripts/packages-qemu.txt"
	fi
	rm -rf "$to/qemu"
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
