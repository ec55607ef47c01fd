# Braid: every command that a person types. `make help` lists them.
SHELL := /bin/bash
BUILD ?= build
JOBS ?= $(shell nproc)
TEST_TIMEOUT ?= 1800

.PHONY: help setup configure build quickstart test test-full dist layers sizes format format-check lint docs bench bench-peer clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## install Debian packages and find libtorch (needs root or sudo only when something is missing)
	@tools/setup.sh

configure: setup ## make the build folder (UNITY=OFF: for file-by-file builds)
	@tools/configure.sh $(BUILD)

build: configure ## build the program as build/braid
	@cmake --build $(BUILD) -j $(JOBS) --target braid

quickstart: build ## SFT, reward model and PPO on a tiny model, from nothing, in a few minutes
	@examples/quickstart/run.sh $(BUILD)/braid

test: configure ## build and run the fast test tier
	@cmake --build $(BUILD) -j $(JOBS)
	@cd $(BUILD) && ctest --output-on-failure --timeout $(TEST_TIMEOUT)

test-full: configure ## everything: all tests without sampling, kill trials, learning runs, lint; writes docs/evidence/
	@cmake --build $(BUILD) -j $(JOBS)
	@python3 tools/test_full.py $(BUILD)

dist: configure ## pack a static planner and an engine wheel into dist/
	@cmake --build $(BUILD) -j $(JOBS) --target braid braid_planner
	@python3 tools/make_dist.py $(BUILD)

layers: ## check the includes against tools/layers.toml
	@python3 tools/check_layers_test.py -q
	@python3 tools/count_rooms_test.py -q
	@python3 tools/check_layers.py

sizes: ## report function and file sizes against the budgets
	@python3 tools/check_sizes.py

format: ## format all C++ sources
	@git ls-files '*.cc' '*.h' | xargs clang-format -i

format-check: ## fail if a C++ source is not formatted
	@git ls-files '*.cc' '*.h' | xargs clang-format --dry-run --Werror

lint: setup ## compile every file with clang, warnings as errors
	@UNITY=OFF tools/configure.sh build-lint
	@cmake build-lint > /dev/null # nothing is built there, so nothing else would see that files came or went
	@python3 tools/lint.py build-lint

docs: build ## write what pages take from the program, and check all pages
	@tools/make_docs.sh $(BUILD)/braid

bench: configure ## run the micro-benchmarks
	@cmake --build $(BUILD) -j $(JOBS)
	@for program in $(BUILD)/*_bench; do $$program; done

PEERS ?= ../shared/peers
PEER_DATA ?= ../shared/data/gsm8k/train.jsonl
bench-peer: configure ## measure beside the peer scripts (BRAID_PEER_PYTHON = interpreter with their packages)
	@cmake --build $(BUILD) -j $(JOBS) --target braid matmul_list
	@python3 bench/peer.py --peers $(abspath $(PEERS)) --data $(abspath $(PEER_DATA)) $(PEER_ARGS) --busy --json $(BUILD)/bench-peer.json

clean: ## remove build results (keeps downloaded dependencies)
	rm -rf $(BUILD)
