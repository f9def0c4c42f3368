# libexperiment on Linux. `make help` lists what there is to ask for.
#
# Honoured: CC, CPPFLAGS, CFLAGS, LDFLAGS, CARGO, CARGO_TARGET_DIR, RUSTFLAGS, OLDEST_GLIBC (see
# packaging/link-library); PREFIX, LIBDIR, INCLUDEDIR, DESTDIR.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include

VERSION := $(shell packaging/version)
SONAME := libexperiment.so.$(firstword $(subst ., ,$(VERSION)))
C_SOURCES = $(wildcard tests/c/*.[ch] tests/faults/*/*.c tests/conformance/*.[ch] examples/c/*.[ch] packaging/*.c packaging/*/*.[ch] \
	benches/*.[ch] benches/*/*.c benches/*/*.cpp \
	bindings/python/src/libexperiment/*.c bindings/cpp/*.[ch]pp bindings/cpp/tests/*.[ch]pp examples/cpp/*.cpp)
MOCK_SERVICE = $(shell $(CARGO) metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/mock-service

SIMULATION = $(CARGO) test --locked --features simulation --test simulation

# Only `make header` writes the header; for everything else, one that is not what src/ffi makes is an
# error.
export EXPERIMENT_HEADER_FROZEN := 1
export CARGO
# Make's own default is none of the user's: to build scripts it would be a change, and all be built anew.
ifneq ($(origin CC),default)
export CC
endif

.NOTPARALLEL:
.PHONY: help toolchain build demo test faults races memory fuzz soak sim check lint fmt header msrv older-system fresh-system install
.PHONY: clean test-rust test-simulation test-library test-examples test-conformance test-bindings
.PHONY: test-faults test-fuzz test-gaps test-soak mock-service tools incident test-incident test-accuracy
.PHONY: bench-sdks bench-crowd bench-calls bench-accuracy bench-peers
.PHONY: demo-cpp demo-go demo-python demo-ruby test-cpp test-go test-python test-ruby

help: ## lists these targets
	@sed -nE 's/^([a-z][a-z -]*):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

toolchain: ## looks for every tool that is needed; as root installs those that Debian has
	@packaging/toolchain --install test

tools:
	@packaging/toolchain build

# What a part of it needs, where `make test` has not seen to all of it.
needs-%:
	@$(if $(filter test,$(MAKECMDGOALS)),:,packaging/toolchain --install $*)

build: tools ## the library, shared and static, and its pkg-config file, in build/
	@packaging/build-library

demo: needs-demo-c build mock-service ## fetches for two users from a mock of the service, then from one that stalls
	@MOCK_SERVICE=$(MOCK_SERVICE) examples/demo.sh c

demo-cpp demo-go demo-python demo-ruby: demo-%: needs-demo-% build mock-service ## the same in that language
	@MOCK_SERVICE=$(MOCK_SERVICE) examples/demo.sh $*

test: toolchain lint build test-rust test-simulation test-library test-examples test-conformance test-bindings test-faults test-gaps test-fuzz test-incident test-accuracy test-speed ## everything that can be tested

test-rust:
	$(CARGO) test --locked --workspace --features test-panic

# The client in simulated worlds, ten thousand of them.
test-simulation:
	$(SIMULATION)

sim: ## a million simulated histories of clients; SIM_SEED=N plays one again
	SIM_HISTORIES=$${SIM_HISTORIES:-1000000} $(SIMULATION)

# What is shipped: how it is linked, and the tests in C with it, under valgrind too.
test-library: build
	@packaging/check-library
	@packaging/check-panics
	EXPERIMENT_BUILD=$(CURDIR)/build $(CARGO) test --locked --test library
	EXPERIMENT_BUILD=$(CURDIR)/build EXPERIMENT_VALGRIND=1 $(CARGO) test --locked --test library

test-examples: build mock-service
	@MOCK_SERVICE=$(MOCK_SERVICE) examples/test.sh

# The cases of tests/conformance in Rust and in C; the bindings run them with their own tests.
test-conformance: build mock-service
	$(CARGO) test --locked --test conformance
	@MOCK_SERVICE=$(MOCK_SERVICE) tests/conformance/test-c

test-bindings: test-cpp test-go test-python test-ruby

# Formatting, lints, tests and the cases of tests/conformance, by the tools of that language.
test-cpp test-go test-python test-ruby: test-%: needs-test-% build mock-service ## the binding of that language
	@MOCK_SERVICE=$(MOCK_SERVICE) bindings/$*/test

# Whatever goes wrong, in five ways of fetching: tests/faults.
test-faults: build
	EXPERIMENT_BUILD=$(CURDIR)/build $(CARGO) test --locked --test faults

faults: build ## the fault matrix, written to docs/faults.md; FAULTS_SEED=N plays it again
	EXPERIMENT_BUILD=$(CURDIR)/build FAULTS_REPORT=$(CURDIR)/docs/faults.md $(CARGO) test --locked --test faults

# No fetch goes on for longer than 5 ms of work without a look at its bounds.
test-gaps:
	@packaging/test-gaps

# Instructions, not seconds: they hardly depend on what else the machine does.
test-speed: build
	@benches/run --gate

bench: toolchain build ## a warm fetch beside libcurl, stock ureq and a bare socket; how late a timeout is
	@benches/run
	$(CARGO) bench --locked --bench overshoot

incident: build ## the service turns bad for ten seconds, and every SDK and ours go through it; 25 minutes
	@benches/incident/run

# Three seconds of it, with the client in C.
test-incident: build
	@benches/incident/run --smoke

bench-sdks: build ## warm fetches in Python and Go beside the vendor's SDKs
	@benches/sdks

bench-crowd: build ## a thousand callers on one pool, ten thousand asynchronous fetches at once
	@benches/crowd

bench-calls: build ## what a fetch and a lookup cost in each language, beside the call in C
	@benches/calls/run

bench-accuracy: build ## how late a timeout is in 33 kinds of stall, with every SDK and ours; ten minutes
	@benches/accuracy/run

# Each kind once, with the client in C.
test-accuracy: build
	@benches/accuracy/run --smoke

bench-peers: build ## size, start and idle cost beside other clients with a native core
	@benches/peers/run

races: needs-sanitizers mock-service ## the tests of asynchronous fetches under ThreadSanitizer; slow
	@MOCK_SERVICE=$(MOCK_SERVICE) packaging/check-sanitizer thread

memory: needs-sanitizers mock-service ## the tests in C under AddressSanitizer, for leaks and undefined behaviour too; slow
	@MOCK_SERVICE=$(MOCK_SERVICE) packaging/check-sanitizer address

fuzz: needs-sanitizers ## each target of fuzz/ for FUZZ_SECONDS (60)
	@packaging/fuzz $${FUZZ_SECONDS:-60}

# The corpus of each target, and five seconds more, the same each time.
test-fuzz:
	@FUZZ_SEED=1 packaging/fuzz 5

soak: ## a million fetches with faults, SOAK_FETCHES another number: memory, descriptors, threads stay flat
	SOAK_FETCHES=$${SOAK_FETCHES:-1000000} $(CARGO) test --locked --test soak -- --nocapture

# What `test-rust` runs of it, with the figures.
test-soak:
	$(CARGO) test --locked --test soak -- --nocapture

mock-service:
	@$(CARGO) build --locked --quiet --package mock-service

check: needs-check build lint ## the quick part: build, unit tests, lints, the header as it should be
	$(CARGO) test --locked --lib
	@packaging/check-library

lint: ## what the linters say; a warning is an error
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings
	$(CARGO) clippy --locked --features count-gaps --lib --test gaps --test conformance --test faults -- --deny warnings
	$(CARGO) clippy --locked --features simulation --lib --test simulation -- --deny warnings
	clang-format --dry-run --Werror $(C_SOURCES)

fmt: ## formats Rust, C and C++
	$(CARGO) fmt --all
	clang-format -i $(C_SOURCES)

header: ## makes include/experiment.h and packaging/symbols.txt anew, from src/ffi
	touch build.rs
	EXPERIMENT_HEADER_FROZEN=0 $(CARGO) check --locked --lib
	git diff --stat -- include packaging/symbols.txt

older-system: needs-systems build mock-service ## runs the tests in C, and Python, on a Debian with glibc 2.31; as root
	@MOCK_SERVICE=$(MOCK_SERVICE) packaging/older-system

fresh-system: needs-systems ## makes demo and test on a new Debian 12 that has Rust, Go and make; as root, an hour
	@packaging/fresh-system

msrv: ## runs the tests with the oldest Rust that Cargo.toml names; rustup must have it
	packaging/msrv

install: ## what was built, to $(DESTDIR)$(PREFIX)
	@test -e build/libexperiment.so || { echo 'nothing is built yet: run `make build`' >&2; exit 1; }
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/experiment $(DESTDIR)$(INCLUDEDIR)
	install -m 644 include/experiment.h bindings/cpp/experiment.hpp $(DESTDIR)$(INCLUDEDIR)/
	install -m 644 build/libexperiment.a $(DESTDIR)$(LIBDIR)/
	install -m 755 build/libexperiment.so.$(VERSION) $(DESTDIR)$(LIBDIR)/
	ln -sf libexperiment.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libexperiment.so
	sed -e 's|^prefix=.*|prefix=$(PREFIX)|' -e 's|^libdir=.*|libdir=$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' \
		-e 's|^includedir=.*|includedir=$(INCLUDEDIR:$(PREFIX)/%=$${prefix}/%)|' \
		build/experiment.pc >$(DESTDIR)$(LIBDIR)/pkgconfig/experiment.pc
	for file in experimentConfig experimentConfigVersion; do \
		sed -e 's|@VERSION@|$(VERSION)|' -e "s|@LIBS_PRIVATE@|$$(sed -n 's/^Libs.private: //p' build/experiment.pc)|" \
			-e "s|@INCLUDEDIR@|$$(realpath -m --relative-to=$(LIBDIR)/cmake/experiment $(INCLUDEDIR))|" \
			bindings/cpp/$$file.cmake.in >$(DESTDIR)$(LIBDIR)/cmake/experiment/$$file.cmake; \
	done

clean: ## removes what was built
	$(CARGO) clean
	rm -rf build
