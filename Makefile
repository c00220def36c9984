# The front door. Every recipe is one script in scripts/, so all of it works without make as well.
# JOBS=N sets the number of parallel jobs, SETUP=skip leaves the system's packages alone.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
export JOBS FUZZ_SECONDS

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo serve build model test test-sanitizers test-slow test-fast test-arm test-includes test-tsan test-ascend test-cuda build-cuda test-train test-report test-page test-clients test-robustness selftest bench fuzz format format-check clean

help: ## list what make can do
	@echo "Espalier: speculation changes the speed, never the text. Start with: make demo"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  while IFS='|' read -r command what; do printf '%-20s %s\n' "$$command" "$$what"; done

demo: ## install what is missing, build, fetch the model, let it answer, without and with speculation
	@scripts/demo

serve: ## install what is missing, build, fetch the model, serve it at http://127.0.0.1:8080 with a chat page
	@scripts/serve

build: ## build the program: build/bin/espalier
	@scripts/setup build && scripts/build bin/espalier

model: ## fetch the default model into models/ (98 MB, checked)
	@scripts/setup model && python3 scripts/fetch_model.py

test: ## what a change has to pass: format, all tests, threads under ThreadSanitizer
	@scripts/test

test-sanitizers: ## the same tests by clang under address and undefined-behaviour sanitizers, and the fuzzers
	@scripts/test sanitizers

test-slow: ## the tests that take too long for every change
	@scripts/test slow

test-fast: ## only the fast tests of the release build
	@scripts/test fast

test-arm: ## build for Arm and run the tests of the CPU device emulated
	@scripts/test-arm

test-includes: ## compile every file alone: what it uses, it includes
	@scripts/test-includes

test-tsan: ## build the tests of threads with ThreadSanitizer and run them
	@scripts/test-tsan

test-ascend: ## build and run what holds the Ascend device to its rules, on a fake of its API
	@scripts/test-ascend

test-cuda: ## build with CUDA and run on this machine's GPU what holds a device to its contract
	@scripts/test-cuda

build-cuda: ## compile the CUDA kernels for every card they are written for
	@scripts/build-cuda

test-train: ## test the training pipeline (installs PyTorch into train/.venv)
	@scripts/test-train

test-report: ## make reports of tiny runs and look at them in headless Chromium (installs it)
	@scripts/test-report

test-page: ## use the chat page of the server in headless Chromium (installs it)
	@scripts/test-page

test-clients: ## use the server with openai, litellm, langchain, llm, lm-eval and promtool (installs them)
	@scripts/test-clients

test-robustness: ## attack the server: smuggling, slowhttptest, schemathesis, 10,000 clients of whom many leave (installs them)
	@scripts/test-robustness

selftest: ## build the tests that judge a device and let them judge this machine's
	@scripts/setup build test && scripts/build bin/espalier selftest_programs && build/bin/espalier selftest

bench: ## run the benchmark programs of the release build
	@scripts/bench

fuzz: ## run every fuzzer for FUZZ_SECONDS (default 600)
	@scripts/setup build test fuzz && scripts/fuzz

format: ## format all C++ sources in place
	@scripts/format

format-check: ## fail if a C++ source is not formatted
	@scripts/format --check

clean: ## remove all build folders (the model stays)
	rm -rf build build-sanitize build-tsan build-clang build-cuda build-arm
