# Thin calls. Everything behind them: scripts/setup.sh (what must be installed), CMakePresets.json (how it is built).
# A GNU make and a C++ compiler are all it takes to start; the rest is fetched by the first target that needs it.

PREFIX ?= /usr/local
PRESET ?= release
BUILD := $(if $(filter release ci,$(PRESET)),build,build-$(PRESET))
CMAKE_ARGS ?=
export PATH := $(CURDIR)/.deps/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup configure build quickstart test test-asan test-tsan fuzz soak mutants pairs parity bench bench-versus
.PHONY: gpu-folder install format tidy clean

help:
	@echo 'make quickstart   build, then train a small model on a laptop: one minute after the first build'
	@echo 'make test         build everything and run every test and check'
	@echo 'make test-asan    the rooms without LibTorch under AddressSanitizer and UBSan (test-tsan: ThreadSanitizer)'
	@echo 'make fuzz         random files for the parsers of checkpoints: FUZZ_RUNS=1000000 each; needs clang++'
	@echo 'make soak         the crashes and faults of a save again, SOAK_TIMES=20 as many, others each time (SOAK_SEED)'
	@echo 'make mutants      small wrong changes, each caught by a test? Two hours; later only what changed. ONLY=id,…'
	@echo 'make pairs        any two techniques together, and docs/pairs.md of what came: ten minutes'
	@echo 'make parity       compare with PyTorch and transformers, in a Python environment of its own (5 GB)'
	@echo 'make bench        make the published figures again'
	@echo 'make bench-versus OTHER=BUILD: start, step, save and ABI of this tree beside another build of Mortise'
	@echo 'make install      PREFIX=$(PREFIX)'
	@echo 'make build CUDA=1 with nvcc and the libraries that a GPU wants, into .deps (3 GB), where the machine has none'
	@echo 'make gpu-folder   what to carry to a machine with a GPU, in build-gpu/: there, build-gpu/run.sh tests it'
	@echo 'make build        bin/mortise and the plugins, no tests'
	@echo 'make format       clang-format over the whole tree'
	@echo 'make tidy         clang-tidy over the sources: ten minutes'
	@echo 'make clean        remove the build folders; .deps stays'
	@echo
	@echo 'PRESET=dev        line numbers and asserts, in build-dev/;  CMAKE_ARGS=… goes to the configuration,' \
	  'such as -DMORTISE_WERROR=OFF'

setup:
	@CUDA='$(CUDA)' scripts/setup.sh

configure: setup
	@if [ ! -e $(BUILD)/build.ninja ] || [ -n '$(CMAKE_ARGS)$(CUDA)' ]; then cmake --preset $(PRESET) $(CMAKE_ARGS); fi

build: configure
	cmake --build $(BUILD) --target product

quickstart:
	@echo '[1/3] set-up'
	@$(MAKE) --no-print-directory setup
	@echo '[2/3] build'
	@$(MAKE) --no-print-directory build
	@echo '[3/3] mortise train configs/quickstart.toml'
	@$(BUILD)/bin/mortise train configs/quickstart.toml
	@echo 'the program is $(BUILD)/bin/mortise; `make install PREFIX=DIR` puts it into DIR/bin'

test: configure
	cmake --build $(BUILD)
	ctest --test-dir $(BUILD) --output-on-failure -j $$(( $$(nproc) + 1 ))

test-asan test-tsan: test-%: setup
	cmake --preset $*
	cmake --build --preset $*
	ctest --preset $*

fuzz: setup
	tests/fuzz/run.sh

SOAK_SEED ?= $(shell date +%s)
SOAK_TIMES ?= 20
SOAK_PY := .deps/venv/bin/python
soak: configure
	cmake --build $(BUILD) --target crash_states_test shim_test hostile_test
	MORTISE_CRASH_SEED=$(SOAK_SEED) MORTISE_CRASH_TIMES=$(SOAK_TIMES) $(BUILD)/tests/crash_states_test
	$(BUILD)/tests/shim_test --gtest_repeat=$(SOAK_TIMES) --gtest_brief=1
	$(BUILD)/tests/hostile_test --gtest_brief=1
	cmake --build $(BUILD) --target product mortise_shim
	MORTISE=$(BUILD)/bin/mortise MORTISE_HOSTILE=all $(SOAK_PY) -B tests/hostile_plugins/hostile_plugins_test.py
	MORTISE=$(BUILD)/bin/mortise MORTISE_KILLS=1000 MORTISE_SEED=$(SOAK_SEED) $(SOAK_PY) tests/faults/survive_test.py Kill
	MORTISE=$(BUILD)/bin/mortise MORTISE_ADVERSITIES=300 MORTISE_SEED=$(SOAK_SEED) $(SOAK_PY) tests/faults/campaign.py
	MORTISE=$(BUILD)/bin/mortise MORTISE_KILLS=200 MORTISE_SEED=$(SOAK_SEED) $(SOAK_PY) tests/faults/ranks_campaign.py

# In a copy of this tree, build-mutants/tree.
mutants: setup
	.deps/venv/bin/python tests/mutants/mutants.py $(if $(ONLY),--only $(ONLY))

pairs: build
	MORTISE=$(BUILD)/bin/mortise .deps/venv/bin/python -B tests/pairs/pairs.py --write

parity: build
	scripts/parity.sh $(BUILD)

bench: build
	benchmarks/run.sh

bench-versus: build
	cmake --build $(BUILD) --target bench_abi
	CUDA_VISIBLE_DEVICES= MORTISE=$(BUILD)/bin/mortise .deps/venv/bin/python -B benchmarks/versus.py $(OTHER)

gpu-folder: build
	scripts/gpu_folder.sh $(BUILD) build-gpu

install: build
	cmake --install $(BUILD) --prefix "$(PREFIX)"

format: setup
	scripts/format.sh

tidy: build
	scripts/tidy.sh $(BUILD)

clean:
	rm -rf build build-dev build-asan build-tsan build-fuzz build-mutants build-gpu
