#!/bin/sh
# Installs missing Debian packages with apt-get.
#
#   scripts/setup.sh FILE...     each file lists one package per line
#
# Rust must be installed (https://rustup.rs).
set -eu

[ $# != 0 ] || {
	echo "setup: no list of packages; usage: scripts/setup.sh scripts/packages-NAME.txt..." >&2
	exit 2
}
command -v cargo >/dev/null || {
	echo "setup: cargo is missing; install Rust from https://rustup.rs" >&2
	exit 1
}

packages=$(cat "$@") # a missing file ends the script here
missing=
for package in $(echo "$packages" | sed 's/#.*//'); do
	# One line for each architecture; `hold` instead of `install` for a held package.
	dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q ' ok installed$' ||
		missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "setup: apt-get is missing; install the equivalents of these Debian packages:$missing;" \
		"then run: make build" >&2
	exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || {
		echo "setup: sudo is missing; run as root: apt-get install$missing" >&2
		exit 1
	}
	as_root=sudo
fi

echo "setup: installing$missing" >&2
$as_root apt-get update -qq
# Packages must not start their services: the tests start their own.
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap '$as_root rm -f "$policy"' EXIT
	trap 'exit 130' HUP INT TERM # dash runs no EXIT trap on a signal
	printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
	$as_root chmod +x "$policy"
fi
# shellcheck disable=SC2086 # one argument a package
$as_root env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y -qq --no-install-recommends $missing >/dev/null
