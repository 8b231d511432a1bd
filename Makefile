# unconvoy: what a user and a developer call.
#
#   make          build everything: target/release/{unconvoy,unconvoy-study,libunconvoy.so}, target/workloads/*
#   make workloads  of that, the programs that benchmarks run
#   make demo     the main job on real input, some 2 minutes after the build; results in .demo/
#   make test     what every change must pass, within 15 minutes; CONTRIBUTING.md says what it covers
#   make test-all everything else: all pairs, sanitizers, databases and browsers, guests
#   make soak     the stress for hours; SECONDS=N
#   make test-busy   `make test` beside two busy loops, five times, beside eight, and beside 20,000 threads
#   make kernel   what `unconvoy predict --kernel` runs, in target/kernel (100 MB)
#   make bench    the evaluation of docs/evaluation, some 40 minutes on a quiet machine; results in .bench/
#   make bench-grids     every workload under every pair of locks and load managers, for hours; results in .bench-grids/
#   make bench-programs  docs/evaluation/programs.md's comparison; results in .bench-programs/
#   make bench-sched  what `unconvoy sched` costs where nobody contends, and the loads on the kernel's locks under it, in a guest; half an hour
#   make validate-elision    Syncchar's predictions against hardware transactions, ten minutes where there are any
#   make figures-simulated  the papers' figures on simulated machines, an hour or two; results in .figures/
#   make docs     the generated parts of docs/; make book: docs/ as a searchable site, in target/book
#   make install  into PREFIX (default /usr/local)

PREFIX ?= /usr/local
CARGO ?= cargo
RELEASE := target/release
RUN_TESTS := scripts/run-tests.sh

# The parts of `make test`, and what `make test-all` adds.
TESTS := test-lint test-layers test-unit test-loom test-preload
TESTS_ALL := test-links test-slow test-pairs test-tsan test-valgrind

.PHONY: all build build-demo build-tests workloads setup setup-demo setup-tests setup-tests-all kernel demo test test-all $(TESTS) $(TESTS_ALL) test-busy soak docs book bench bench-grids bench-programs bench-sched validate-elision figures-simulated install header clean

all: setup build

setup:
	@scripts/setup.sh scripts/packages-build.txt

setup-tests: setup
	@scripts/setup.sh scripts/packages-test.txt

setup-tests-all: setup-tests
	@scripts/setup.sh scripts/packages-test-all.txt scripts/packages-syncchar.txt scripts/packages-kernel.txt crates/preload/tests/packages.txt
	@scripts/setup-kernel.sh

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

# What the demo runs, and nothing else.
build-demo:
	$(CARGO) build --release -p unconvoy-cli -p unconvoy-preload
	$(MAKE) --no-print-directory -C papers/workloads OUT=$(CURDIR)/target/workloads $(addprefix $(CURDIR)/target/workloads/,leveldb_bench raytrace)

demo: setup-demo build-demo
	scripts/demo.sh

setup-demo:
	@scripts/setup.sh scripts/packages-demo.txt

# Each part is run, even if an earlier one failed; a part's time and what it skipped are listed at the end.
define run_parts
@$(RUN_TESTS) begin
@failed=; for part in $(1); do $(RUN_TESTS) $$part $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	$(RUN_TESTS) end || failed="$$failed tools"; [ -z "$$failed" ] || { echo "FAILED:$$failed" >&2; exit 1; }
endef

# Unset, a sample of pairs is drawn anew each time.
test: export UNCONVOY_SUITE_SEED := $(or $(UNCONVOY_SUITE_SEED),$(shell date +%s))
test: setup-tests
	$(call run_parts,build-tests $(TESTS))

test-all: setup-tests-all
	$(call run_parts,build $(TESTS_ALL))

# What the tests load and execute.
build-tests:
	$(CARGO) build --release -p unconvoy-cli -p unconvoy-papers -p unconvoy-preload -p unconvoy-png -p unconvoy-trace-store
	$(MAKE) --no-print-directory -C crates/bench/workloads OUT=$(CURDIR)/target/workloads

# `make test` beside neighbours (crates/preload/tests/c/neighbour.c), which end with it: two busy loops, eight, and a process
# that holds 20,000 threads, or as many as the system has room for.
BUSY_TESTS ?= test
test-busy: setup-tests
	@mkdir -p target
	$(CC) -std=c11 -Wall -Wextra -O2 -pthread -o target/neighbour crates/preload/tests/c/neighbour.c
	for round in 1 2 3 4 5; do target/neighbour --seconds 43200 --spin 2 $(MAKE) $(BUSY_TESTS) || exit; done
	target/neighbour --seconds 43200 --spin 8 $(MAKE) $(BUSY_TESTS)
	target/neighbour --seconds 43200 --threads 20000 $(MAKE) $(BUSY_TESTS)

# Random programs of mutexes, reader-writer locks and condition variables, for SECONDS in each round.
SECONDS ?= 36000
soak: setup-tests build-tests
	@mkdir -p target
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -pthread -o target/stress crates/preload/tests/c/stress.c
	LD_PRELOAD=$(CURDIR)/$(RELEASE)/libunconvoy.so target/stress --seconds $(SECONDS)

test-lint:
	@# Formatting and lints are part of the toolchain's optional components; say so where they are missing.
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; else echo "missing: cargo fmt is not installed (rustup component add rustfmt)"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --release --quiet --workspace --all-targets -- -D warnings; else echo "missing: cargo clippy is not installed (rustup component add clippy)"; fi

# No circle of file imports in any package, and no import against the layers: crates/layers.
test-layers:
	$(CARGO) test --release --quiet -p unconvoy-layers
# Links in the comments of the locks and of the interposer lead somewhere; those to private items do for who reads the sources.
RUSTDOC_LINTS := -D warnings -A rustdoc::private_intra_doc_links
test-links:
	RUSTDOCFLAGS="$(RUSTDOC_LINTS)" $(CARGO) doc --quiet -p unconvoy --no-deps --document-private-items
	@# `cargo doc` leaves it out (`doc = false`): both libraries have one name.
	$(CARGO) rustdoc --quiet -p unconvoy-preload --lib -- $(RUSTDOC_LINTS) --document-private-items

# Packages whose tests all need QEMU, a kernel or a BPF compiler.
GUESTS := unconvoy-sched-ext unconvoy-trace-collector unconvoy-plugin-user unconvoy-plugin-system
# `cargo test` shows what a passing test printed only if it is asked: it may have been skipped.
TEST := $(CARGO) test --release --no-fail-fast

# The library with its generic suite, the harness, the command; optimised, since the suite is about time.
test-unit:
	$(TEST) --workspace --exclude unconvoy-preload --exclude unconvoy-layers $(addprefix --exclude ,$(GUESTS)) -- --show-output

# Tests that take long, or need databases, browsers, QEMU or a guest; the quick tests of the same packages are in `make test`.
test-slow:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so $(TEST) --workspace --exclude unconvoy-layers $(addprefix --exclude ,$(GUESTS)) -- --ignored --show-output
	$(TEST) $(addprefix -p ,$(GUESTS)) -- --show-output

test-loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release -p unconvoy --test loom

# ThreadSanitizer is unstable in rustc, which RUSTC_BOOTSTRAP lets through; the standard library stays as it is.
test-tsan:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan" CARGO_TARGET_DIR=target/tsan \
		TSAN_OPTIONS="suppressions=$(CURDIR)/scripts/tsan-suppressions.txt" \
		$(CARGO) test --release -p unconvoy --test suite --target $$(rustc -vV | sed -n 's/^host: //p')

# Behaviour, and conformance to glibc under the default pair and a sample of the others.
test-preload:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so $(TEST) -p unconvoy-preload -- --show-output

# What POSIX says, under every pair; and once with a special set, whose threads are moved about.
test-pairs:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=all $(TEST) -p unconvoy-preload --test conformance --test stress -- --show-output
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control UNCONVOY_SUITE_SSC=1 \
		$(TEST) -p unconvoy-preload --test conformance --test regressions --test stress -- --show-output

test-valgrind:
	scripts/valgrind.sh $(RELEASE)/libunconvoy.so target/workloads

# The C header, from the C API's source.
header:
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy --test capi the_header

# The generated parts of docs/: from the catalogue, the tests' table of pthread functions, the layers and the command's help.
docs:
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy --test docs
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy-preload --test symbols page_on
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy-layers --test architecture
	UNCONVOY_BLESS=1 $(CARGO) test -p unconvoy-cli --test docs help_page

# docs/ as a searchable site.
REPOSITORY := https://github.com/unconvoy/unconvoy/blob/HEAD
book:
	@command -v mdbook >/dev/null || { echo "missing: mdbook is not installed (cargo install mdbook)" >&2; exit 1; }
	mdbook build
	@# What a page links outside of docs/ is in the repository.
	find target/book -name '*.html' -exec sed -i -E \
		-e 's#href="(\.\./)+(CONTRIBUTING|CHANGELOG|SECURITY)\.html#href="$(REPOSITORY)/\2.md#g' \
		-e 's#href="(\.\./)+crates/#href="$(REPOSITORY)/crates/#g' {} +
	@echo "target/book/index.html"

bench: setup build
	scripts/bench.sh

# Every workload under every pair; what Ctrl-C left is continued by the next call. scripts/publish-grids.sh publishes it.
bench-grids: setup build
	scripts/bench-grids.sh

# Real programs with and without the library, some 25 minutes on a quiet machine.
bench-programs: setup build
	@scripts/setup.sh scripts/packages-programs.txt
	scripts/bench-programs.sh

# What `unconvoy sched` costs where nobody contends, in instructions of a guest, so that the host's speed does not matter; then the loads of
# docs/reference/kernel-workloads.md, for which it does.
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
	install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy $(addprefix $(RELEASE)/unconvoy-,study sched-ext png parquet)
	install -D -m 755 $(RELEASE)/libunconvoy_plugin_system.so $(DESTDIR)$(PREFIX)/lib/unconvoy/libunconvoy_plugin_system.so
	install -d $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads
	find target/workloads -maxdepth 1 -type f -perm -u+x -exec install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads {} +
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(RELEASE)/unconvoy man $(DESTDIR)$(PREFIX)/share/man/man1

clean:
	$(CARGO) clean
	rm -rf .demo .bench .bench-grids .bench-programs .figures
