# Links the tarball's programs with an older glibc, and makes their bytes depend on nothing but the
# commit and the compilers. To be sourced in the root folder of the repository.

build=$PWD/target/tarball
sysroot=$build/sysroot
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=unconvoy-$version-x86_64-linux
# Packages of the tarball's programs and libraries.
shipped="unconvoy-cli unconvoy-preload unconvoy-top unconvoy-png"

scripts/tarball/sysroot.sh "$sysroot"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
BUILD_COMMIT=$(git rev-parse HEAD)
CARGO_TARGET_DIR=$build
# Cargo's own names for this folder and for its packages.
registry=${CARGO_HOME:-$HOME/.cargo}
toolchain=$(rustc --print sysroot)
RUSTFLAGS="--remap-path-prefix=$PWD=/unconvoy --remap-path-prefix=$registry=/cargo"
RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$toolchain=/rust"
# gcc searches this machine's libraries before those of `--sysroot`, and both after those of `-L`.
LDFLAGS="--sysroot=$sysroot -B$sysroot/usr/lib/x86_64-linux-gnu"
LDFLAGS="$LDFLAGS -L$sysroot/usr/lib/x86_64-linux-gnu -L$sysroot/lib/x86_64-linux-gnu"
for flag in $LDFLAGS; do
	RUSTFLAGS="$RUSTFLAGS -Clink-arg=$flag"
done
CFLAGS="--sysroot=$sysroot -ffile-prefix-map=$PWD=/unconvoy -ffile-prefix-map=$registry=/cargo"
export SOURCE_DATE_EPOCH BUILD_COMMIT CARGO_TARGET_DIR RUSTFLAGS CFLAGS
LC_ALL=C.UTF-8
TZ=UTC
export LC_ALL TZ
