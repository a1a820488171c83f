# The front door. Each target installs what it needs: Debian packages (as root; otherwise it prints the line to run) and a
# virtual environment .venv with pinned packages. A second run repeats nothing. SKIP_APT=1 leaves the packages to you.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := $(CURDIR)/.venv/bin
PY     := $(BIN)/python
# An interpreter that has MegEngine 1.13, for more columns in make bench (benchmarks/README.md says how to get one).
MGE13  ?=
export PATH := $(BIN):$(PATH)
say     = @echo "== $(1)"

# The Python packages of a preset other than dev: a copy of python/ with that preset's binaries.
staged  = PYTHONPATH=$(CURDIR)/build/$(1)/python
stage   = $(PY) tools/stage_python.py build/$(1)/python

PACKAGES     = $(wildcard python/megengine python/megenginelite)
CXX_FOLDERS  = $(wildcard src include python/bindings tests tools examples benchmarks cmake)
CXX_FILES    = $(shell find $(CXX_FOLDERS) \( -name '*.h' -o -name '*.cpp' -o -name '*.c' \) | sort)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@for m in $(CROSS); do printf '  make %-11s %s\n' test-$$m "C++ tests of Lite and networks on $$m, emulated"; done

# ---- what the other targets need

.stamps/apt-%: tools/bootstrap.sh
	@PYTHON="$(PYTHON)" tools/bootstrap.sh $*
	@mkdir -p $(@D) && touch $@

.venv/stamp-build: requirements/build.txt | .stamps/apt-build
	$(call say,Python packages for building -> .venv)
	@test -x $(PY) || "$(PYTHON)" -m venv .venv
	@$(PY) -m pip install -q --disable-pip-version-check -r $<
	@echo "$(CURDIR)/python" > "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/megengine-dev.pth"
	@touch $@

.venv/stamp-test: requirements/test.txt .venv/stamp-build
	$(call say,Python packages for testing -> .venv)
	@$(PY) -m pip install -q --disable-pip-version-check -r $<
	@touch $@

.venv-cuda/stamp: requirements/cuda.txt
	$(call say,NVRTC -> .venv-cuda)
	@test -d .venv-cuda || $(PYTHON) -m venv .venv-cuda
	@.venv-cuda/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

.venv-zig/stamp: requirements/zig.txt
	$(call say,Clang and musl -> .venv-zig)
	@test -d .venv-zig || $(PYTHON) -m venv .venv-zig
	@.venv-zig/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

.venv-bench-torch/stamp: benchmarks/requirements-torch.txt
	$(call say,PyTorch to compare with -> .venv-bench-torch)
	@test -x $(@D)/bin/python || "$(PYTHON)" -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

.venv-bench-lite/stamp: benchmarks/requirements-lite.txt
	$(call say,inference runtimes to compare with -> .venv-bench-lite)
	@test -x $(@D)/bin/python || "$(PYTHON)" -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

.venv-ray/stamp: requirements/ray.txt
	$(call say,Ray to start processes with -> .venv-ray)
	@test -x $(@D)/bin/python || "$(PYTHON)" -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	@cp "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/megengine-dev.pth" \
	  "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/"
	@touch $@

.PHONY: venv
venv: .venv/stamp-build .venv/stamp-test ## .venv with the pinned Python packages

build/%/build.ninja: | .venv/stamp-build
	$(call say,configuring preset $*)
	@cmake --preset $* --log-level=WARNING

BUILDS := build-dev build-release build-lite build-asan build-tsan build-lite-asan
.PHONY: $(BUILDS)
$(BUILDS): build-%: build/%/build.ninja .venv/stamp-build
	$(call say,building preset $*)
	@cmake --build --preset $* $(if $(findstring lite-,$*),--target mge_fuzz_lite)

# ---- work

.PHONY: build demo test bench parity
build: build-dev ## compile; afterwards .venv/bin/python can import megengine and megenginelite

demo: build ## train LeNet on handwritten digits, run it through every way to deploy it, then a file of MegEngine's
	$(call say,demo)
	@$(PY) examples/digits_lenet.py
	@$(PY) examples/lite/original.py

test: ## everything CI checks: lint, C++ tests, models and kernels on 64-bit ARM, Python tests, doctests
	@$(MAKE) lint-fast
	@$(MAKE) build
	@$(MAKE) tidy
	@$(MAKE) ctest
	@$(MAKE) cuda-kernels
	@$(MAKE) instructions
	@$(MAKE) machines
	@$(MAKE) pytest

bench: build-release .venv-bench-torch/stamp .venv-bench-lite/stamp ## speed, beside PyTorch in the same run
	$(call say,benchmarks with the release build)
	@$(call stage,release)
	@$(call staged,release) $(PY) benchmarks/run.py --torch-python .venv-bench-torch/bin/python --lite-python .venv-bench-lite/bin/python $(if $(MGE13),--mge13-python $(MGE13)) $(BENCH)

parity: build-release .venv-bench-torch/stamp ## accuracy and behaviour, beside PyTorch
	$(call say,parity with the release build)
	@$(call stage,release)
	@$(call staged,release) $(PY) benchmarks/parity.py --torch-python .venv-bench-torch/bin/python
	@$(if $(MGE13),$(call staged,release) $(PY) benchmarks/original_files.py --mge13-python $(MGE13),echo "MGE13=PYTHON also compares model files with MegEngine 1.13's Lite")

.PHONY: launchers
launchers: build-dev .venv-bench-torch/stamp .venv-ray/stamp .stamps/apt-mpi ## examples/distributed by torchrun, mpirun and Ray
	$(call say,launchers)
	@$(PY) tools/launchers.py --torchrun .venv-bench-torch/bin/torchrun --ray-python .venv-ray/bin/python

FUZZ_BUDGET ?= 100000
.PHONY: fuzz
# Ten times as many of Lite, whose loaders and C API strangers feed.
fuzz: build-dev build-lite-asan .venv/stamp-test ## attacks on files, writers and handles; FUZZ_BUDGET cases each, 10 times that of Lite under asan+ubsan
	$(call say,fuzz)
	@MGE_FUZZ_BUILD=lite-asan $(PY) tools/fuzz/run.py --budget $$(( $(FUZZ_BUDGET) * 10 )) lite
	@$(PY) tools/fuzz/run.py --budget $(FUZZ_BUDGET) --but lite

# ---- pieces of `make test`

.PHONY: ctest cuda-kernels instructions pytest lint lint-fast tidy format coverage stubs mistakes
coverage: build-dev ## docs/coverage.md anew from the op registry
	@$(PY) tools/coverage.py

stubs: build-dev ## the ops of the type stub anew from the op registry
	@$(PY) tools/stubs.py

mistakes: build-dev .venv/stamp-test ## the table of mistakes: its score, and the messages that fall short
	@$(PY) tests/python/test_mistakes.py

ctest: build-dev
	$(call say,C++ tests)
	@ctest --preset dev -j "$$(nproc)" --progress

# NVRTC needs no GPU.
cuda-kernels: build-dev .venv-cuda/stamp ## every GPU kernel for every dtype compiled for sm_80 and sm_90
	$(call say,GPU kernels by NVRTC)
	@nvrtc=$$(ls .venv-cuda/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13) && LD_LIBRARY_PATH=$$(dirname $$nvrtc) \
	  MGE_CUDA_NVRTC=$$nvrtc MGE_CUDA_CACHE_DIR=build/cuda-images \
	  build/dev/bin/mge_test_cuda --gtest_brief=1 --gtest_filter='CudaTexts.*'

instructions: build-dev .stamps/apt-count ## instructions per small op, against those recorded
	$(call say,instructions per small op)
	@$(PY) tools/instructions.py build/dev/bin/mge_dispatch

pytest: build-dev .venv/stamp-test .stamps/apt-mpi .stamps/apt-browser .stamps/apt-gdb
	$(call say,Python tests and doctests)
	@$(PY) -m pytest tests/python --doctest-modules $(PACKAGES)

lint: lint-fast tidy ## clang-format, clang-tidy on changed files, ruff, mypy --strict, include rules

lint-fast: .venv/stamp-test .stamps/apt-lint
	$(call say,clang-format)
	@clang-format --dry-run -Werror $(CXX_FILES) 2>&1 | sed -n 's/:[0-9:]* error:.*/: not in format, make format rewrites it/p' | sort -u >&2
	$(call say,include rules)
	@$(PY) tools/check_includes.py
	@$(PY) tools/check_imports.py
	$(call say,ruff)
	@ruff check -q . && ruff format --check . | sed "/already formatted/d"
	$(call say,mypy --strict)
	@mypy --strict $(PACKAGES)

tidy: build-dev .stamps/apt-lint
	$(call say,clang-tidy on changed files)
	@$(PY) tools/tidy.py build/dev

format: .venv/stamp-test .stamps/apt-lint ## rewrite sources in the project's format
	@clang-format -i $(CXX_FILES)
	@ruff check -q --fix . || true
	@ruff format -q .

# ---- other machines: cross builds of Lite, run by qemu-user (docs/machines.md)

HIGHWAY := build/third_party/highway-1.2.0/hwy/targets.cc
$(HIGHWAY):
	@tools/fetch_highway.sh

CROSS := aarch64 riscv64 armv7 musl windows
.PHONY: machines $(CROSS:%=test-%)
# The part that CI can afford: kernels and model files on one of them.
machines: build-dev .venv/stamp-test .stamps/apt-aarch64 $(HIGHWAY)
	$(call say,64-bit ARM: kernels and model files)
	@cmake --preset lite-aarch64 --log-level=WARNING
	@cmake --build --preset lite-aarch64 --target load_and_run mge_test_kernel mge_test_jit
	@ctest --preset lite-aarch64 -j "$$(nproc)" --progress -R '^(kernel_short|jit)$$'
	@$(PY) tools/machines.py build/lite-aarch64

NETS ?= resnet18 mobilenet_v2 shufflenet_v2
test-musl: .venv-zig/stamp
test-windows: .stamps/apt-wine
$(CROSS:%=test-%): test-%: build-dev .venv/stamp-test .stamps/apt-cross $(HIGHWAY)
	$(call say,$*: C++ tests and models)
	@cmake --preset lite-$* --log-level=WARNING
	@cmake --build --preset lite-$*
	@ctest --preset lite-$* -j "$$(nproc)" --progress -E '^kernel_short$$'
	@$(PY) tools/machines.py build/lite-$* --nets $(NETS)

# ---- other builds

.PHONY: test-asan test-tsan lite size wheel wheel-lite wheels wheels-test clean distclean
test-asan: export UBSAN_OPTIONS = print_stacktrace=1:halt_on_error=1
test-asan: build-asan .venv/stamp-test ## C++ tests and a Python subset under address and undefined-behaviour sanitizers
	$(call say,C++ tests under asan+ubsan)
	@ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 \
	  ctest --preset asan -j "$$(nproc)" --progress
	$(call say,Python subset under asan+ubsan)
	@$(call stage,asan)
	@LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so) $$(g++ -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(call staged,asan) $(PY) -m pytest tests/python -m asan_subset

test-tsan: build-tsan ## C++ tests under the thread sanitizer
	$(call say,C++ tests under tsan)
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 ctest --preset tsan -j "$$(nproc)" --progress

lite: build-lite ## the small inference build: build/lite/bin/load_and_run and liblite.so

size: build-release build-lite ## stripped sizes of what ships, beside their goals
	@$(call stage,release)
	@mkdir -p build/size
	@cd benchmarks && $(call staged,release) $(PY) lite_mge.py dump mobilenet_v2 ../build/size/mobilenet_v2.mge
	@$(PY) tools/size.py --goals build/size/mobilenet_v2.mge

wheel: .venv/stamp-build ## dist/*.whl for the Python of .venv
	$(call say,wheel -> dist/)
	@$(PY) -m pip wheel -q . --no-deps --no-build-isolation -w dist && ls -l dist

wheel-lite: .venv/stamp-build ## dist/megenginelite-*.whl: Lite alone, small, for every Python 3
	$(call say,wheel of Lite alone -> dist/)
	@$(PY) -m pip wheel -q ./python/lite_wheel --no-deps --no-build-isolation -w dist && ls -l dist

wheels: .stamps/apt-build ## dist/*.whl for Python 3.10 to 3.13 (PYTHONS="3.11 3.12" for some)
	$(call say,wheels -> dist/)
	@"$(PYTHON)" tools/wheels.py build $(PYTHONS)

wheels-test: .venv/stamp-build ## each wheel of dist/ in a fresh virtual environment: imports, trains, deploys, builds C++
	$(call say,wheels in fresh virtual environments)
	@"$(PYTHON)" tools/wheels.py test $(PYTHONS)

clean: ## remove build results; keeps .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests -name '*.so*' -delete -o -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environments too
	rm -rf .venv .venv-* .stamps
