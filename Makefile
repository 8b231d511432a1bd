# Targets for users and developers.
#
#   make                    build everything: programs and libraries in target/release, workload
#                           programs in target/workloads
#   make workloads          build only the programs that the benchmarks run
#   make demo               compare libc with unconvoy on LevelDB and a ray tracer, 2 minutes, or 4
#                           from a fresh clone; results in .demo/
#   make test               run the checks that every change must pass, 11 to 14 minutes; see
#                           CONTRIBUTING.md
#   make test-all           run all other tests: all pairs, sanitizers, databases, browsers, guests
#   make soak               run seven stress tests and soaks, half an hour each (SECONDS=N)
#   make fuzz               fuzz the parsers, ten minutes each (SECONDS=N)
#   make test-suites        run other projects' test suites without and with the library, hours;
#                           results in target/suites (SUITES="cpython glib" for some)
#   make test-busy          run `make test` beside busy neighbours, seven times
#   make kernel             fetch the kernel and the QEMU of `unconvoy predict --kernel` into
#                           target/kernel (100 MB)
#   make bench              measure the numbers of docs/evaluation, 40 minutes on a quiet machine;
#                           results in .bench/
#   make bench-grids        measure every workload under every pair, for hours; results in
#                           .bench-grids/
#   make bench-programs     measure docs/evaluation/programs.md; results in .bench-programs/
#   make bench-tune         compare `unconvoy tune` with the best of twelve configurations, hours;
#                           results in .bench-tune/
#   make bench-sched        measure the overhead and the kernel workloads of `unconvoy sched` in a
#                           guest, half an hour
#   make validate-elision   compare Syncchar's predictions with hardware transactions, ten minutes
#   make patched            build Debian's LevelDB and SQLite without and with the patches that
#                           `unconvoy predict` led to (papers/patches), 4 minutes
#   make bench-patched      predict and measure what these patches gain, ten minutes; results in
#                           .bench-patched/
#   make figures-simulated  simulate the papers' figures, hours with SEEDS=5; results in .figures/
#   make evaluation         renew the records of docs/evaluation that are not of this machine and
#                           this code, for up to a day (RECORDS="bench tune" for some)
#   make docs               regenerate the generated parts of docs/
#   make api                list the public API of the library in crates/locks/api.txt
#   make book               build docs/ as a searchable site in target/book
#   make install            install into PREFIX (default /usr/local)
#   make uninstall          remove what `make install` put into PREFIX
#   make install-library    install only libunconvoy.so, beside a command from `cargo install`
#   make deb                build Debian packages in target/debian; `make test-deb` tries them
#   make tarball            build target/tarball/unconvoy-VERSION-x86_64-linux.tar.gz for other
#                           distributions
#   make test-tarball       install, run and remove the tarball in Debian 12 and 13, as root
#   make test-reproducible  build command and library in two clones, and compare the bytes

PREFIX ?= /usr/local
CARGO ?= cargo
RELEASE := target/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
RUN_TESTS := scripts/run-tests.sh

# make takes each part of a path with a space for a path, which `make uninstall` would remove.
has_space = $(filter-out 1,$(words x$(1)x))
$(foreach name,PREFIX DESTDIR,$(if $(call has_space,$($(name))),\
	$(error $(name) must be a path without spaces: "$($(name))")))
# A relative path, or a ~ that no shell expanded, would stand in unconvoy.pc.
$(if $(filter-out /%,$(PREFIX)),$(error PREFIX must begin with a slash: "$(PREFIX)"))

# The parts of `make test`, and of `make test-all`. Those joined by `+` run side by side, because
# each leaves a processor idle for a good part of its time; those joined by `,` one after the other.
TESTS := build-tests test-lint test-layers test-loom+test-unit+test-preload
TESTS_ALL := build-tests-all test-links+test-glibc test-rare test-slow \
	test-pairs+test-figures,test-loom-whole test-tsan+test-valgrind
comma := ,
parts = $(subst $(comma), ,$(subst +, ,$(1)))

# Packages that `make test` omits: programs that few users need, and parts whose tests all need
# QEMU, a kernel, a BPF compiler or cbindgen.
RARE := unconvoy-capi unconvoy-release unconvoy-png unconvoy-trace-store unconvoy-sched-ext \
	unconvoy-trace-collector unconvoy-plugin-user unconvoy-plugin-system

# The two selections of packages that tests are built from. Cargo chooses the features of a shared
# dependency by selection, so a third selection would compile most of the workspace again.
USUAL_PACKAGES := --workspace $(addprefix --exclude ,$(RARE))
RARE_PACKAGES := $(addprefix -p ,$(RARE))

# Runs tests of the usual selection; $(1) is `ONLY=` or `EXCEPT=` with names of packages. By
# default, cargo hides the output of passing tests, and so the reasons of skipped ones.
TEST = $(1) $(CARGO) test --release --no-fail-fast $(USUAL_PACKAGES) \
	--config "target.'cfg(unix)'.runner = '$(CURDIR)/scripts/run-selected.sh'"

# The recipes expect programs in target/. The option overrides a user's configuration of cargo.
unexport CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR
IN_TARGET := --target-dir target

# Tests run cargo, too, which reads the variable.
build-tests build-tests-all $(call parts,$(TESTS) $(TESTS_ALL)) soak validate-elision: \
	export CARGO_TARGET_DIR := $(CURDIR)/target

# Prerequisites are steps in order: packages, build, installation.
.NOTPARALLEL:

.PHONY: all build build-demo workloads setup setup-demo setup-tests setup-tests-all setup-release \
	setup-oldest-rust kernel demo test test-all $(call parts,$(TESTS) $(TESTS_ALL)) test-busy \
	test-suites soak fuzz docs book bench bench-grids bench-programs bench-tune bench-sched \
	validate-elision patched bench-patched figures-simulated evaluation install install-files \
	install-unconvoy install-library uninstall deb deb-files test-deb tarball test-tarball \
	test-reproducible header api clean

all: setup build

setup:
	$(if $(call has_space,$(CURDIR)),$(error this folder needs a path without spaces: "$(CURDIR)"))
	@scripts/setup.sh scripts/packages-build.txt

setup-tests: setup
	$(if $(call has_space,$(TMPDIR)),$(error TMPDIR must be a path without spaces: "$(TMPDIR)"))
	@scripts/setup.sh scripts/packages-test.txt

setup-tests-all: setup-tests setup-oldest-rust
	@scripts/setup.sh scripts/packages-test-all.txt scripts/packages-syncchar.txt \
		scripts/packages-kernel.txt crates/preload/tests/packages.txt
	@scripts/setup-kernel.sh
	@scripts/setup-glibc.sh $(GLIBC_SUITES)

# The Rust that `rust-version` in Cargo.toml promises to support. Its test is skipped where it cannot
# be fetched.
OLDEST_RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)
setup-oldest-rust:
	@! command -v rustup >/dev/null || rustup run $(OLDEST_RUST) cargo --version >/dev/null 2>&1 || \
		rustup toolchain install --no-self-update --profile minimal $(OLDEST_RUST) || true

# A kernel to profile, and a QEMU that runs it.
kernel: setup
	@scripts/setup.sh scripts/packages-kernel.txt
	@scripts/setup-kernel.sh

build:
	$(CARGO) build $(IN_TARGET) --release --workspace
	$(CARGO) rustc $(IN_TARGET) --quiet --release -p unconvoy --lib --features capi \
		--crate-type staticlib
	$(MAKE) --no-print-directory workloads

workloads:
	$(MAKE) --no-print-directory -C papers/workloads OUT=$(CURDIR)/target/workloads

# Only what the demo runs.
build-demo:
	$(CARGO) build $(IN_TARGET) --release -p unconvoy-cli -p unconvoy-preload
	$(MAKE) --no-print-directory -C papers/workloads OUT=$(CURDIR)/target/workloads \
		$(addprefix $(CURDIR)/target/workloads/,leveldb_bench raytrace)

demo: setup-demo build-demo
	scripts/demo.sh

setup-demo:
	@scripts/setup.sh scripts/packages-demo.txt

# Without a seed, each run draws another sample of pairs.
test: export UNCONVOY_SUITE_SEED := $(or $(UNCONVOY_SUITE_SEED),$(shell date +%s))
test: setup-tests
	@$(RUN_TESTS) all "$(MAKE)" $(TESTS)

test-all: setup-tests-all
	@$(RUN_TESTS) all "$(MAKE)" $(TESTS_ALL)

# The tests, and the binaries that they load and execute.
build-tests:
	$(CARGO) build --release $(USUAL_PACKAGES) --all-targets
	$(MAKE) --no-print-directory -C crates/bench/workloads OUT=$(CURDIR)/target/workloads

build-tests-all: build-tests
	$(CARGO) build --release $(RARE_PACKAGES) --all-targets
	$(CARGO) rustc --quiet --release -p unconvoy --lib --features capi --crate-type staticlib
	$(MAKE) --no-print-directory workloads

# Runs `make test` beside neighbours (crates/preload/tests/c/neighbour.c): five times beside two
# busy loops, then beside eight, then beside a process with 20,000 threads, or as many as the system
# allows. A neighbour ends with its tests.
BUSY_TESTS ?= test
test-busy: setup-tests
	@mkdir -p target
	$(CC) -std=c11 -Wall -Wextra -O2 -pthread -o target/neighbour crates/preload/tests/c/neighbour.c
	for round in 1 2 3 4 5; do \
		target/neighbour --seconds 43200 --spin 2 $(MAKE) $(BUSY_TESTS) || exit; done
	target/neighbour --seconds 43200 --spin 8 $(MAKE) $(BUSY_TESTS)
	target/neighbour --seconds 43200 --threads 20000 $(MAKE) $(BUSY_TESTS)

# SECONDS each: the stress test, the differential test, four programs beside disturbances, and the
# longest wait on 256 simulated contexts, of which half an hour simulates only a part.
SECONDS ?= 1800
soak: export LIMIT = $(shell expr 8 '*' $(SECONDS) + 2400)
soak: setup-tests-all build-tests
	@mkdir -p target
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -pthread -o target/stress crates/preload/tests/c/stress.c
	@# The dynamic linker only prints that it cannot load the library.
	LD_PRELOAD=$(CURDIR)/$(RELEASE)/libunconvoy.so target/stress --seconds $(SECONDS) \
		2>target/stress.txt || { cat target/stress.txt; exit 1; }
	@if test -s target/stress.txt; then cat target/stress.txt; exit 1; fi
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control \
		UNCONVOY_DIFFERENTIAL_SECONDS=$(SECONDS) UNCONVOY_SOAK_SECONDS=$(SECONDS) \
		$(call TEST,ONLY=unconvoy-preload) --test differential --test soak -- --include-ignored \
		--nocapture
	UNCONVOY_SOAK_SECONDS=$(SECONDS) $(call TEST,ONLY=unconvoy-sim) --test longest_wait -- \
		--include-ignored --nocapture

# Fuzzes the parsers of files that somebody else may have made, SECONDS each.
fuzz: FUZZ_SECONDS := $(if $(filter file,$(origin SECONDS)),600,$(SECONDS))
fuzz: setup
	scripts/fuzz.sh $(FUZZ_SECONDS)

# Continues an interrupted run.
test-suites: setup-tests build
	scripts/test-suites.py $(SUITES)

test-lint:
	@# rustfmt and clippy are optional components of the toolchain.
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
	else echo "missing: cargo fmt is not installed (rustup component add rustfmt)"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
		$(CARGO) clippy --release --quiet $(USUAL_PACKAGES) --all-targets -- -D warnings; \
	else echo "missing: cargo clippy is not installed (rustup component add clippy)"; fi

# Checks that the imports are acyclic and respect the layers (crates/layers).
test-layers:
	$(call TEST,ONLY=unconvoy-layers) --quiet

# Checks links in the comments of the locks and the interposer. Links to private items are allowed:
# they serve readers of the source.
RUSTDOC_LINTS := -D warnings -A rustdoc::private_intra_doc_links
HIDDEN_TOO := -Z unstable-options --document-hidden-items
test-links:
	@# RUSTC_BOOTSTRAP allows the option for hidden items, which serve this repository's programs.
	RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/links RUSTDOCFLAGS="$(RUSTDOC_LINTS) $(HIDDEN_TOO)" \
		$(CARGO) doc --quiet -p unconvoy --no-deps --document-private-items
	RUSTDOCFLAGS="$(RUSTDOC_LINTS)" $(CARGO) doc --quiet -p unconvoy --no-deps
	@# `cargo doc` skips the library (`doc = false`), since both libraries have the same name.
	$(CARGO) rustdoc --quiet -p unconvoy-preload --lib -- $(RUSTDOC_LINTS) --document-private-items

# The library with its generic suite, the benchmark harness and the command. The build is optimized,
# because the suite measures.
test-unit:
	$(call TEST,EXCEPT='unconvoy-layers unconvoy-preload') -- --show-output

test-rare:
	$(CARGO) test --release --no-fail-fast $(RARE_PACKAGES) -- --show-output
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
		$(CARGO) clippy --release --quiet $(RARE_PACKAGES) --all-targets -- -D warnings; fi

# Long tests, and tests that need databases, browsers, QEMU or a guest. `make test` has the quick
# tests of these packages.
test-slow:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so \
		$(call TEST,) -- --ignored --skip $(FIGURES_TEST) --show-output

# Every second simulated figure at reduced size; UNCONVOY_FIGURE=all for all.
FIGURES_TEST := simulated_figures_match_paper_claims
test-figures:
	$(call TEST,ONLY=unconvoy-papers) --test figures $(FIGURES_TEST) -- --ignored --show-output

# Stops a model after five seconds, unless it has a limit of its own.
test-loom:
	LOOM_MAX_DURATION=5 $(MAKE) --no-print-directory test-loom-whole

# No model takes longer than five minutes: the largest would otherwise decide how long all tests
# take.
test-loom-whole: export LOOM_MAX_DURATION ?= 300
test-loom-whole:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release -p unconvoy --test loom

# RUSTC_BOOTSTRAP enables rustc's unstable ThreadSanitizer. The standard library is not
# instrumented, so its test harness, with threads of its own, would be reported, and so would the
# release of captured output by the last thread of a test.
test-tsan:
	RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/tsan \
		RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan" \
		TSAN_OPTIONS="suppressions=$(CURDIR)/scripts/tsan-suppressions.txt" \
		$(CARGO) test --release -p unconvoy --test suite --target $$(rustc -vV | sed -n 's/^host: //p') \
		-- --test-threads 1 --nocapture

# Behaviour, and conformance to glibc, under the default pair and a sample of other pairs; then
# conformance with a lock profile of libc's locks.
test-preload:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so \
		$(call TEST,ONLY=unconvoy-preload) -- --show-output
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control \
		UNCONVOY_SUITE_PROFILE=libc \
		$(call TEST,ONLY=unconvoy-preload) --test conformance --test seccomp -- --show-output

# POSIX conformance under every pair, once with a special set, which moves threads between cores,
# and with a lock profile. The programs mostly sleep, so twice as many run as there are processors.
test-pairs: export RUST_TEST_THREADS := $(shell expr 2 \* $$(nproc))
test-pairs:
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=all \
		$(call TEST,ONLY=unconvoy-preload) --test conformance --test stress -- --show-output
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control \
		UNCONVOY_SUITE_SSC=1 \
		$(call TEST,ONLY=unconvoy-preload) --test conformance --test regressions --test stress \
		-- --show-output
	UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so \
		UNCONVOY_SUITE=loiter+control,mcs+park,ttas+none UNCONVOY_SUITE_STRATEGY=mixed \
		$(call TEST,ONLY=unconvoy-preload) --test conformance --test regressions --test stress \
		-- --show-output
	for locks in own libc; do \
		UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control \
			UNCONVOY_SUITE_PROFILE=$$locks $(call TEST,ONLY=unconvoy-preload) --test conformance \
			--test regressions --test stress --test seccomp -- --show-output || exit; \
	done

# Conformance under newer versions of glibc. trixie's is 2.41, in which the layout of a
# pthread_cond_t changed.
GLIBC_SUITES ?= trixie
test-glibc:
	@scripts/setup-glibc.sh $(GLIBC_SUITES)
	for suite in $(GLIBC_SUITES); do \
		UNCONVOY_LIBRARY=$(CURDIR)/$(RELEASE)/libunconvoy.so UNCONVOY_SUITE=loiter+control \
			UNCONVOY_SUITE_GLIBC=$(CURDIR)/target/glibc/$$suite/usr/lib/x86_64-linux-gnu \
			$(call TEST,ONLY=unconvoy-preload) --test conformance --test regressions \
			--test stress --test waits -- --show-output || exit; \
	done

test-valgrind:
	scripts/valgrind.sh $(RELEASE)/libunconvoy.so target/workloads

# Generates the C header from the source of the C API.
header:
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy-capi header

# Lists the public API of the library.
api:
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy-release --test api list

# Regenerates the tables of docs/ from the catalogue of locks, the tests' table of pthread
# functions, the layers and the command's help.
docs:
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy --test docs
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy-preload --test symbols page_on
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy-layers --test architecture
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy-cli --test docs help_page
	UNCONVOY_BLESS=1 $(CARGO) test --release -p unconvoy-cli --test listings page_explains

# Builds docs/ as a searchable site.
REPOSITORY := https://github.com/unconvoy/unconvoy/blob/HEAD
MDBOOK := $(or $(shell command -v mdbook),target/tools/mdbook-0.5.4/bin/mdbook)
target/tools/mdbook-0.5.4/bin/mdbook:
	$(CARGO) install --quiet --locked --root target/tools/mdbook-0.5.4 mdbook@0.5.4
book: $(MDBOOK)
	$(MDBOOK) build
	@# Links that leave docs/ lead to the repository. A test compares the names.
	find target/book -name '*.html' -exec sed -i -E \
		-e 's#href="(\.\./)+(CONTRIBUTING|CHANGELOG|SECURITY)\.html#href="$(REPOSITORY)/\2.md#g' \
		-e 's#href="(\.\./)+(crates|papers|scripts)/#href="$(REPOSITORY)/\2/#g' {} +
	@echo "target/book/index.html"

bench: setup build
	scripts/bench.sh

# Every workload under every pair. Continues an interrupted run. scripts/publish-grids.sh publishes
# it.
bench-grids: setup build
	scripts/bench-grids.sh

# Real programs with and without the library, an hour or two on a quiet machine.
bench-programs: setup build
	@scripts/setup.sh scripts/packages-programs.txt
	scripts/bench-programs.sh

# What `unconvoy tune` finds against the best of twelve configurations; CELLS="redis@8 counter" for
# some. Continues an interrupted run.
bench-tune: setup build
	@scripts/setup.sh scripts/packages-programs.txt
	scripts/bench-tune.py $(CELLS)

# Measures the overhead of `unconvoy sched` without contention in instructions of a guest, which do
# not depend on the host's speed. Then runs the workloads of
# docs/reference/kernel-workloads.md, whose numbers depend on it.
bench-sched: setup-tests kernel
	$(CARGO) test --release -p unconvoy-sched-ext --test guest overhead -- --ignored --nocapture
	$(CARGO) test --release -p unconvoy-sched-ext --test guest throughput -- --ignored --nocapture

# Skips the comparison, with a message, on a machine without hardware transactions.
validate-elision: setup build
	@scripts/setup.sh scripts/packages-syncchar.txt scripts/packages-elision.txt
	UNCONVOY_VALIDATE=1 $(CARGO) test --release -p unconvoy-papers --test elision -- \
		--include-ignored --nocapture --test-threads 1

# Sources from the Debian archive that apt uses.
patched:
	@scripts/setup.sh scripts/packages-patched.txt
	scripts/patched.sh

# Continues an interrupted run. Without hardware transactions, it omits the elided lock and says so.
bench-patched: patched
	@scripts/setup.sh scripts/packages-test.txt scripts/packages-syncchar.txt
	$(CARGO) build $(IN_TARGET) --release -p unconvoy-cli -p unconvoy-preload \
		-p unconvoy-plugin-user
	scripts/bench-patched.py --out .bench-patched

# The papers' figures on simulated machines, one to two hours per seed on two processors; SEEDS=5
# for medians and spread. Continues an interrupted run.
SEEDS ?= 1
figures-simulated: build
	$(RELEASE)/unconvoy papers all simulated --out .figures --seeds $(SEEDS)

# Continues an interrupted run. scripts/evaluation.toml lists the records.
evaluation: setup-tests build
	scripts/evaluation.py $(RECORDS)
	$(MAKE) --no-print-directory docs book

# Needed besides scripts/packages-build.txt.
setup-release: setup
	@scripts/setup.sh scripts/packages-release.txt

# Packages for Debian in target/debian: the command with its library, the scheduler, the plug-ins.
CARGO_DEB := target/tools/cargo-deb-3.8.0/bin/cargo-deb
PACKAGED := unconvoy-cli unconvoy-preload unconvoy-top \
	$(filter-out unconvoy-capi unconvoy-release,$(RARE))
$(CARGO_DEB):
	$(CARGO) install --quiet --locked --root target/tools/cargo-deb-3.8.0 cargo-deb@3.8.0
deb: export BUILD_COMMIT = $(shell git rev-parse HEAD)
deb: setup-release build deb-files
deb-files: $(CARGO_DEB)
	rm -rf target/package target/debian
	$(MAKE) --no-print-directory install-files DESTDIR=$(CURDIR)/target/package PREFIX=/usr
	@# No package has the study.
	rm target/package/usr/share/man/man1/unconvoy-bench* \
		target/package/usr/share/man/man1/unconvoy-papers* \
		target/package/usr/share/man/man1/unconvoy-sim*
	scripts/licences.py $(PACKAGED) >target/package/licences.txt
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) scripts/sbom.py $(PACKAGED) \
		>target/package/unconvoy.cdx.json
	for package in unconvoy unconvoy-sched-ext unconvoy-predict; do \
		printf "$$package ($(VERSION)-1) unstable; urgency=low\n\n  * See %s.\n\n -- %s  %s\n" \
			"https://github.com/unconvoy/unconvoy/blob/v$(VERSION)/CHANGELOG.md" \
			"The unconvoy developers <unconvoy@users.noreply.github.com>" \
			"$$(git log -1 --format=%cD)" >target/package/$$package.changelog || exit; done
	strip --strip-unneeded target/package/usr/bin/* target/package/usr/lib/unconvoy/unconvoy-* \
		target/package/usr/lib/unconvoy/*.so
	strip --strip-debug target/package/usr/lib/libunconvoy.a
	for package in unconvoy-cli unconvoy-sched-ext unconvoy-plugin-user; do \
		$(CARGO_DEB) --quiet --no-build --no-strip -p $$package || exit; done
	ls target/debian/*.deb

# Installs the packages in a fresh Debian 12, runs the README's commands, and removes them.
test-deb: deb
	@scripts/setup.sh scripts/packages-deb.txt
	scripts/deb/test.sh

# A tarball for other distributions, linked with the older glibc of Debian 11.
tarball: setup-release
	scripts/tarball/build.sh

test-tarball: tarball
	@scripts/setup.sh scripts/packages-tarball.txt
	scripts/tarball/test.sh

# Of the last commit.
test-reproducible: setup-release
	scripts/tarball/reproducible.sh

install: build install-files

# What `cargo install` cannot install.
install-library:
	$(CARGO) build $(IN_TARGET) --release -p unconvoy-preload
	install -D -m 755 $(RELEASE)/libunconvoy.so $(DESTDIR)$(PREFIX)/lib/unconvoy/libunconvoy.so

install-files: install-unconvoy
	install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy $(RELEASE)/libunconvoy_plugin_user.so \
		$(RELEASE)/libunconvoy_plugin_system.so
	install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy \
		$(addprefix $(RELEASE)/unconvoy-,study sched-ext parquet)
	install -d $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads
	install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads $(addprefix target/workloads/, \
		$(shell $(MAKE) --silent --no-print-directory -C papers/workloads programs))

# The command, the library, and what C needs. `umask`: files that `install` does not make are for
# all users, whatever umask root's shell has.
install-unconvoy:
	install -D -m 755 $(RELEASE)/unconvoy $(DESTDIR)$(PREFIX)/bin/unconvoy
	install -D -m 644 crates/locks/include/unconvoy.h $(DESTDIR)$(PREFIX)/include/unconvoy.h
	install -D -m 644 $(RELEASE)/libunconvoy.a $(DESTDIR)$(PREFIX)/lib/libunconvoy.a
	install -D -m 755 $(RELEASE)/libunconvoy.so $(DESTDIR)$(PREFIX)/lib/unconvoy/libunconvoy.so
	install -m 755 -t $(DESTDIR)$(PREFIX)/lib/unconvoy $(addprefix $(RELEASE)/unconvoy-,top png)
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	umask 022 && $(RELEASE)/unconvoy man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig \
		$(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions \
			fish/vendor_completions.d)
	umask 022 && sed -e 's#@PREFIX@#$(PREFIX)#' -e 's#@VERSION@#$(VERSION)#' \
		scripts/unconvoy.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/unconvoy.pc
	umask 022 && $(RELEASE)/unconvoy completions bash \
		>$(DESTDIR)$(PREFIX)/share/bash-completion/completions/unconvoy
	umask 022 && $(RELEASE)/unconvoy completions zsh \
		>$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_unconvoy
	umask 022 && $(RELEASE)/unconvoy completions fish \
		>$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/unconvoy.fish

# Removes what install-files installs. A folder with other files stays.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/unconvoy include/unconvoy.h lib/libunconvoy.a \
		lib/pkgconfig/unconvoy.pc share/man/man1/unconvoy.1 share/man/man1/unconvoy-*.1 \
		share/bash-completion/completions/unconvoy share/zsh/site-functions/_unconvoy \
		share/fish/vendor_completions.d/unconvoy.fish)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/unconvoy/,libunconvoy.so libunconvoy_plugin_user.so \
		libunconvoy_plugin_system.so $(addprefix unconvoy-,study sched-ext parquet top png))
	rm -rf $(DESTDIR)$(PREFIX)/lib/unconvoy/workloads
	rmdir $(DESTDIR)$(PREFIX)/lib/unconvoy 2>/dev/null || :

clean:
	$(CARGO) clean
	rm -rf .demo .bench .bench-grids .bench-patched .bench-processors .bench-programs .bench-tune .figures .evaluation
