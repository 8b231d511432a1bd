#!/bin/sh
# Builds Debian's LevelDB and SQLite without and with the patches of papers/patches, and the
# programs that measure them. Needs the packages in scripts/packages-patched.txt, three minutes, and
# 180 MB in target/patched. Sources come from the Debian archive that apt uses on this machine.
#
#   scripts/patched.sh [SOURCE...]            leveldb, sqlite3 [default: both]
#   scripts/patched.sh --check [SOURCE...]    only fetch, and check that the patches fit
#
# Exit status: 0; 1: failed; 3: this machine cannot fetch the source, or has another version.
# NAME-0 is unpatched, NAME-1 has the first patch, NAME-2 the first two. To run one:
#   LD_LIBRARY_PATH=target/patched/leveldb-2 target/patched/leveldb_bench
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/target/patched
jobs=$(nproc)

fail() {
	echo "patched: $*" >&2
	exit 1
}

cannot() {
	echo "patched: $*" >&2
	exit 3
}

# The release that the patches are for.
release_of() {
	case $1 in
	leveldb) echo 1.23 ;;
	sqlite3) echo 3.40.1 ;;
	*) fail "no patches for $1; known are leveldb and sqlite3" ;;
	esac
}

# apt-get with a configuration of its own, which changes nothing of the system's.
apt() {
	apt-get -qq -o Dir::Etc::SourceList="$out/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$out/apt/lists" -o Dir::Cache="$out/apt/cache" \
		-o APT::Sandbox::User= "$@"
}

# Source entries for the archives of Debian's own packages.
prepare_apt() {
	mkdir -p "$out/apt/lists/partial" "$out/apt/cache/archives/partial"
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[ ! -e $keys ] || signed=" [signed-by=$keys]"
	apt-get indextargets \
		--format "deb-src${signed-} \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" \
		'Created-By: Packages' 'Origin: Debian' | sort -u >"$out/apt/sources.list"
	[ -s "$out/apt/sources.list" ] ||
		cannot "apt knows no Debian archive; run apt-get update on a Debian system"
	apt update || cannot "cannot reach the Debian archive"
}

# Unpacks Debian's source of $1 to $2, with Debian's patches.
fetch() {
	[ -s "$out/apt/sources.list" ] || prepare_apt
	mkdir -p "$out/sources"
	# apt has checked the checksums against the signed index.
	(cd "$out/sources" && apt source --download-only "$1") ||
		cannot "cannot fetch the source package $1"
	release=$(release_of "$1")
	dsc=$(find "$out/sources" -name "$1_$release-*.dsc" | sort -V | tail -1)
	[ -n "$dsc" ] || cannot "the patches are for $1 $release, which this Debian does not have"
	rm -rf "$2"
	dpkg-source --no-check --no-copy -x "$dsc" "$2" >/dev/null
	sed -n 's/^Version: //p' "$dsc" | head -1 >"$out/$1.version"
}

# Builds the source in $1 to $2, with the flags of a Debian package.
build_leveldb() {
	cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=None -DBUILD_SHARED_LIBS=ON -DLEVELDB_INSTALL=OFF \
		-DLEVELDB_BUILD_BENCHMARKS=OFF -DLEVELDB_BUILD_TESTS=OFF \
		-DCMAKE_CXX_FLAGS="$(dpkg-buildflags --get CXXFLAGS) $(dpkg-buildflags --get CPPFLAGS)"
	make -C "$2" -j"$jobs"
}

build_sqlite3() {
	mkdir -p "$2"
	# The options that Debian's rules set.
	options=$(sed -n '/^export CFLAGS/,/[^\\]$/p' "$1/debian/rules" |
		grep -oE -- '-(D[A-Z0-9_]+(=[0-9]+)?|fno-[a-z-]+)')
	(
		cd "$2"
		"$1/configure" --enable-threadsafe --disable-tcl
		make sqlite3.c
		# shellcheck disable=SC2046,SC2086 # words
		gcc $(dpkg-buildflags --get CFLAGS) $(dpkg-buildflags --get CPPFLAGS) $options -fPIC \
			-shared -Wl,-soname,libsqlite3.so.0 -o libsqlite3.so.0 sqlite3.c -lm
	)
	ln -sf libsqlite3.so.0 "$2/libsqlite3.so"
}

# Builds $1 without patches, with the first, and so on. What is newer than its patches stays.
build_variants() {
	name=$1
	set -- "$root/papers/patches/$name"/*.patch
	latest=$(ls -t "$0" "$@" | head -1)
	if [ "$out/$name-$#.built" -nt "$latest" ]; then
		return
	fi
	fetch "$name" "$out/source"
	number=0
	while :; do
		echo "patched: building $name-$number, $name $(cat "$out/$name.version")" >&2
		rm -rf "$out/$name-$number" "$out/$name-$number.built"
		"build_$name" "$out/source" "$out/$name-$number" >"$out/$name.log" 2>&1 || {
			tail -n 20 "$out/$name.log" >&2
			fail "cannot build $name-$number; see $out/$name.log"
		}
		touch "$out/$name-$number.built"
		[ $# != 0 ] || break
		patch -s -d "$out/source" -p1 <"$1" || fail "$1 does not fit $name"
		shift
		number=$((number + 1))
	done
	rm -rf "$out/source"
}

check_patches() {
	fetch "$1" "$out/source"
	for patch in "$root/papers/patches/$1"/*.patch; do
		patch -s -d "$out/source" -p1 <"$patch" || fail "$patch does not fit $1"
	done
	rm -rf "$out/source"
}

build_bench_leveldb() {
	make -s -C "$root/papers/workloads" OUT="$out" "$out/leveldb_bench"
}

build_bench_sqlite3() {
	gcc -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -pthread -I"$root/crates/bench/workloads" \
		-I"$out/sqlite3-0" -o "$out/sqlite_bench" "$root/papers/patches/sqlite3/sqlite_bench.c" \
		-L"$out/sqlite3-0" -lsqlite3 -lm
}

check=
if [ "${1-}" = --check ]; then
	check=1
	shift
	# Not where a build may be.
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
	trap 'exit 130' HUP INT TERM
fi
[ $# != 0 ] || set -- leveldb sqlite3
rm -f "$out/apt/sources.list"
for name in "$@"; do
	release_of "$name" >/dev/null
	if [ -n "$check" ]; then
		check_patches "$name"
	else
		build_variants "$name"
		"build_bench_$name"
	fi
done
