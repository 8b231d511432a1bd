# unconvoy: what a user and a developer call.
#
#   make          build everything: target/release/{unconvoy,unconvoy-study,libunconvoy.so}, target/workloads/*
#   make workloads  of that, the programs that benchmarks run
#   make demo     the main job on real input, some 3 minutes after the build; results in .demo/
#   make test     every test
#   make test-layers  of these, whether imports follow the layers; `UNCONVOY_BLESS=1` takes mended ones off the list
#   make test-busy  every test twice: beside eight busy loops, and beside a process that holds 20,000 threads; some hours
#   make kernel   what `unconvoy predict --kernel` runs, in target/kernel (100 MB)
#   make bench    the evaluation of docs/, some 40 minutes on a quiet machine; results in .bench/
#   make bench-grids     every workload under every pair of locks and load managers, for hours; results in .bench-grids/
#   make bench-programs  docs/programs.md's comparison; results in .bench-programs/
#   make bench-sched  what `unconvoy sched` costs where nobody contends, and the loads on the kernel's locks under it, in a guest; half an hour
#   make validate-elision    Syncchar's predictions against hardware transactions, ten minutes where there are any
#   make figures-simulated  the papers' figures on simulated machines, an hour or two; results in .figures/
#   make install  into PREFIX (default /usr/local)

PREFIX ?= /usr/local
CARGO ?= cargo
RELEASE := target/release
TESTS_PACKAGES := scripts/packages-test.txt scripts/packages-syncchar.txt scripts/packages-kernel.txt crates/preload/tests/packages.txt

.PHONY: all build workloads setup setup-tests kernel demo test test-unit test-loom test-tsan test-valgrind test-preload test-lint test-layers test-links test-busy docs bench bench-grids bench-programs bench-sched validate-elision figures-simulated install header clean

all: setup build

setup:
	@scripts/setup.sh scripts/packages-build.txt

setup-tests: setup
	@scripts/setup.sh $(TESTS_PACKAGES)
	@scripts/setup-kernel.sh || echo "setup: the tests of syncchar --kernel will be skipped" >&2

# A kernel to profile, and a QEMU to profile it under, in target/kernel.
kernel: setup
	@scripts/setup.sh scripts/packages-kernel.txt
	@scripts/setup-kernel.sh

build:
	$(CARGO) build --release --workspace
	$(CARGO) rustc --quiet --release -p unconvoy --lib --features capi --crate-type staticlib
	$(MAKE) --no-print-directory workloads

workloads:
	$(MAKE) --no-print-directory -C papers/workloads OUT=$(CURDIR)/target/workloads

demo: setup build
	scripts/demo.sh

test: setup-tests build test-lint test-layers test-links test-unit test-loom test-tsan test-preload test-valgrind

# Every test once more beside each of two neighbours (crates/preload/tests/c/neighbour.c), which end with it: eight busy loops,
# and a process that holds 20,000 threads, or as many as the system has room for.
BUSY_TESTS ?= test
test-busy: setup-tests build
	$(CC) -std=c11 -Wall -Wextra -O2 -pthread -o target/neighbour crates/preload/tests/c/neighbour.c
	target/neighbour --seconds 43200 --spin 8 $(MAKE) $(BUSY_TESTS)
	target/neighbour --seconds 43200 --threads 20000 $(MAKE) $(BUSY_TESTS)

test-lint:
	@# Formatting and lints are part of the toolchain's optional components; say so where they are missing.
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; else echo "skipped: cargo fmt is not installed (rustup component add rustfmt)"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --quiet --workspace --all-targets -- -D warnings; else echo "skipped: cargo clippy is not installed (rustup component add clippy)"; fi

# No circle of file imports in any package, and no import against the layers: crates/layers.
test-layers:
	$(CARGO) test --release --quiet -p unconvoy-layers
# Links in the comments of the locks and of the interposer lead somewhere; those to private items do for who reads the sources.
RUSTDOC_LINTS := -D warnings -A rustdoc::private_intra_doc_links
test-links:
	RUSTDOCFLAGS="$(RUSTDOC_LINTS)" $(CARGO) doc --quiet -p unconvoy --no-deps --document-private-items
	@# `cargo doc` leaves it out (`doc = false`): both libraries have one name.
	$(CARGO) rustdoc --quiet -p unconvoy-preload --lib -- $(RUSTDOC_LINTS) --document-private-items

# The library with its generic suite, the harness, the command; optimised, since the suite is about time.
test-unit:
	$(CARGO) test --release --no-fail-fast -p unconvoy -p unconvoy-cli -p unconvoy-measure -p unconvoy-bench -p unconvoy-papers -p unconvoy-sched -p unconvoy-sched-ext -p unconvoy-sim \
		-p unconvoy-syncchar -p unconvoy-trace-stream -p unconvoy-trace-store -p unconvoy-trace-collector -p unconvoy-plugin-user -p unconvoy-plugin-system

test-loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release -p unconvoy --test loom

# ThreadSanitizer is unstable in rustc, which RUSTC_BOOTSTRAP lets through; the standard library stays as it is.
test-tsan:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan" CARGO_TARGET_DIR=target/tsan \
		TSAN_OPTIONS="suppressions=$(CURDIR)/scripts/tsan-suppressions.txt" \
		$(CARGO) test --release -p unconvoy --test suite --target $$(rustc -vV | sed -n 's/^host: //p')

test-preload:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so $(CARGO) test --release --no-fail-fast -p unconvoy-preload
	@# Once more the tests that ask what POSIX says, with threads that are moved about.
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control UNCONVOY_SUITE_SSC=1 \
		$(CARGO) test --release --no-fail-fast -p unconvoy-preload --test conformance --test regressions --test stress

test-valgrind:
	scripts/valgrind.sh $(RELEASE)/libunconvoy.so target/workloads

# The C header, from the C API's source.
header:
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy --test capi the_header

# The tables in docs/, from the catalogue and from the tests' table of pthread functions.
docs:
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy --test docs
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy-preload --test symbols page_on

bench: setup build
	scripts/bench.sh

# Every workload under every pair; what Ctrl-C left is continued by the next call.
bench-grids: setup build
	scripts/bench-grids.sh

# Real programs with and without the library, some 25 minutes on a quiet machine.
bench-programs: setup build
	@scripts/setup.sh scripts/packages-programs.txt
	scripts/bench-programs.sh

# What `unconvoy sched` costs where nobody contends, in instructions of a guest, so that the host's speed does not matter; then the loads of
# docs/kernel-workloads.md, for which it does.
bench-sched: setup-tests
	$(CARGO) test --release -p unconvoy-sched-ext --test guest overhead -- --ignored --nocapture
	$(CARGO) test --release -p unconvoy-sched-ext --test guest throughput -- --ignored --nocapture

# Says so where no hardware transaction commits, and runs all but the comparison.
validate-elision: setup build
	@scripts/setup.sh $(TESTS_PACKAGES)
	UNCONVOY_VALIDATE=1 $(CARGO) test --release -p unconvoy-papers --test elision -- --nocapture --test-threads 1

# The papers' figures on simulated machines, an hour or two on two processors; what Ctrl-C left is continued by the next call.
figures-simulated: build
	$(RELEASE)/unconvoy papers all simulated --out .figures

install: build
	install -D -m 755 $(RELEASE)/unconvoy $(DESTDIR)$(PREFIX)/bin/unconvoy
	install -D -m 644 crates/locks/include/unconvoy.h $(DESTDIR)$(PREFIX)/include/unconvoy.h
	install -D -m 644 $(RELEASE)/libunconvoy.a $(DESTDIR)$(PREFIX)/lib/libunconvoy.a
	install -D -m 755 $(RELEASE)/libunconvoy.so $(DESTDIR)$(PREFIX)/lib/unconvoy/libunconvoy.so
	install -D -m 755 $(RELEASE)/libunconvoy_plugin_user.so $(DESTDIR)$(PREFIX)/lib/unconvoy/libunconvoy_plugin_user.so
	install -D -m 755 $(RELEASE)/unconvoy-study $(DESTDIR)$(PREFIX)/lib/unconvoy/unconvoy-study
	install -D -m 755 $(RELEASE)/unconvoy-sched-ext $(DESTDIR)$(PREFIX)/lib/unconvoy/unconvoy-sched-ext
	install -D -m 755 $(RELEASE)/libunconvoy_plugin_system.so $(DESTDIR)$(PREFIX)/lib/unconvoy/libunconvoy_plugin_system.so
	install -d $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads
	find target/workloads -maxdepth 1 -type f -perm -u+x -exec install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads {} +
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(RELEASE)/unconvoy man $(DESTDIR)$(PREFIX)/share/man/man1

clean:
	$(CARGO) clean
	rm -rf .demo .bench .bench-grids .bench-programs .figures
