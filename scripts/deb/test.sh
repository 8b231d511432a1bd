#!/bin/sh
# Checks the packages of `make deb` with lintian, installs them in a fresh Debian 12, runs commands
# of the README there, and removes them. Needs root, and the packages lintian and debootstrap.
set -eu

packages=target/debian
root=$(mktemp -d "${TMPDIR:-/tmp}/unconvoy-deb.XXXXXX")
trap 'umount "$root/proc" 2>/dev/null || :; rm -rf "$root"' EXIT
trap 'exit 130' HUP INT TERM
in_root() {
	chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

lintian --fail-on error "$packages"/*.deb

site=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Codename: bookworm' |
	head -1)
debootstrap --variant=minbase bookworm "$root" "${site:-http://deb.debian.org/debian}" >/dev/null
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/"
cp "$packages"/*.deb "$root/tmp/"

in_root sh -c 'apt-get install -y -qq --no-install-recommends /tmp/*.deb' >"$root/tmp/log" 2>&1 || {
	cat "$root/tmp/log" >&2
	exit 1
}
in_root unconvoy --version --verbose
in_root unconvoy doctor
in_root unconvoy run -- sh -c 'echo runs'
in_root unconvoy locks >/dev/null
in_root unconvoy compare --runs 3 -- sleep 0.01
in_root unconvoy profile --html /tmp/page.html -- apt-cache stats >/dev/null
test -s "$root/tmp/page.html"
in_root unconvoy run --stats /tmp/locks.json -- apt-cache stats >/dev/null
in_root unconvoy stats /tmp/locks.json
in_root unconvoy predict -- sh -c 'echo predicts'
in_root /usr/lib/unconvoy/unconvoy-sched-ext --version
for file in lib/pkgconfig/unconvoy.pc share/man/man1/unconvoy.1.gz \
	share/bash-completion/completions/unconvoy share/zsh/vendor-completions/_unconvoy \
	share/fish/vendor_completions.d/unconvoy.fish share/doc/unconvoy/licences.txt \
	share/doc/unconvoy/unconvoy.cdx.json; do
	test -s "$root/usr/$file" || { echo "not installed: /usr/$file" >&2; exit 1; }
done

in_root apt-get purge -y -qq unconvoy unconvoy-sched-ext unconvoy-predict >/dev/null 2>&1
left=$(in_root find / -xdev ! -path '/proc/*' ! -path '/tmp/*' -name '*unconvoy*')
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
echo "the packages install, work and leave nothing"
