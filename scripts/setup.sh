#!/bin/sh
# Installs what the build, the demo and the tests need and this machine lacks: Debian packages, by apt-get.
#
#   scripts/setup.sh FILE...     each names one package a line
#
# Rust is expected (https://rustup.rs); everything else comes from here.
set -eu

command -v cargo >/dev/null || {
	echo "setup: no cargo: install Rust first, see https://rustup.rs" >&2
	exit 1
}

missing=
for package in $(cat "$@" | sed 's/#.*//'); do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "setup: this is no Debian; install by your system's means what corresponds to:$missing" >&2
	exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || {
		echo "setup: run as root: apt-get install$missing" >&2
		exit 1
	}
	as_root=sudo
fi

echo "setup: installing$missing" >&2
$as_root apt-get update -qq
# No service that comes with a package is started: the tests start their own.
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
	$as_root chmod +x "$policy"
	trap '$as_root rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086 # one argument a package
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
