SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
# Python of a new .venv: what is asked for, else the first of these that runs.
ASKED := $(filter-out undefined,$(origin PYTHON))
ifeq ($(ASKED),)
PYTHON = $(or $(wildcard $(BIN)/python),$(shell for each in python3.11 python3.12 python3.13; do $$each -c '' 2>/dev/null && echo $$each && break; done))
endif
VERSION := 'import sys; print("%d.%d" % sys.version_info[:2])'
# Where torch comes from: requirements/install_torch.py says what else may stand here.
TORCH_INDEX ?= auto
SETUP := lock dev remotes
STAMP := .venv/.installed
LOCKED := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps
PARALLEL := -n auto --dist worksteal --durations 10
# XLA compiles in about half the time, to slower programs; clones in tests compile as users do.
QUICK := JAX_DISABLE_MOST_OPTIMIZATIONS=1
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/src:$(CURDIR)
export OMP_WAIT_POLICY := PASSIVE
PRESET ?= default
MODELS ?=
JOBS ?= auto
GRIDS ?= inputs/allo
BENCH ?=
MODEL ?= allo
PORT ?=

# Refuses a variable of the command line that none of its targets reads.
read_by = $(if $(and $(MAKECMDGOALS),$(filter command,$(origin $(1)))),$(if $(filter $(2),$(MAKECMDGOALS)),,$(error make $(MAKECMDGOALS) has no $(1); these have: $(2))))
$(call read_by,PRESET,repro gate promote retrain grids)
$(call read_by,MODELS,repro gate promote results)
$(call read_by,JOBS,repro retrain)
$(call read_by,MODEL,profile compare)

.PHONY: help setup moto cluster docs new compare sweep repro test test-full check lock schema ui experiments plots sync gate promote retrain verify identify grids states fields decoders results bench bench-peers profile campaign clean

help:  ## this menu
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'
	@echo; echo "  variables: PRESET=$(PRESET)  MODELS='allo'  JOBS=$(JOBS)  GRIDS=$(GRIDS)  BENCH='allo iqn'  MODEL=$(MODEL)"

setup: $(STAMP)  ## .venv with the locked packages, renewed when a lock file changes (PYTHON=python3.12, TORCH_INDEX=URL)
	@$(BIN)/python requirements/install_torch.py '$(TORCH_INDEX)'

# The path comes before setuptools' finder of editable packages: beside a clone named quatrain, that folder is no package.
$(STAMP): pyproject.toml .venv/.locked | same-python
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo '$(CURDIR)/src' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/quatrain.pth"
	@touch $@

.venv/.locked: $(SETUP:%=requirements/%.txt) requirements/torch.txt | same-python
	@case "$$($(PYTHON) -c $(VERSION))" in 3.1[123]) ;; *) echo "setup: Python 3.11, 3.12 or 3.13 is needed, and '$(PYTHON)' is none; install one, or name one by PYTHON=" >&2; exit 2;; esac
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "setup: installing into .venv (some minutes, once)"
	@for part in $(SETUP); do $(LOCKED) -r requirements/$$part.txt || exit; done
	@$(BIN)/python requirements/install_torch.py '$(TORCH_INDEX)'
	@touch $@

# A .venv keeps its Python: who asks for another is told so, and nothing is mixed.
.PHONY: same-python
same-python:
	@test -z "$(ASKED)" || test ! -x $(BIN)/python || test "$$($(PYTHON) -c $(VERSION))" = "$$($(BIN)/python -c $(VERSION))" || { echo "setup: .venv is of Python $$($(BIN)/python -c $(VERSION)), not of $(PYTHON); move it away, or use another checkout" >&2; exit 2; }

moto: .venv/moto/.installed  ## an S3 server for the tests of remotes, in an environment of its own

.venv/moto/.installed: requirements/moto.txt $(STAMP)
	@test -x .venv/moto/bin/python || $(PYTHON) -m venv .venv/moto
	@.venv/moto/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

cluster: .venv/.cluster  ## Ray, for `make sweep` and `make compare` on several machines (--address), and its tests

.venv/.cluster: requirements/cluster.txt $(STAMP)
	@$(LOCKED) -r $<
	@touch $@

compare: $(STAMP)  ## did a change help? both sides over seeds (MODEL=, ARGS='-S train.learning_rate=3e-3' or '--against HEAD~1')
	@$(BIN)/python -m pipeline compare $(MODEL) $(ARGS)

sweep: $(STAMP)  ## search parameters by trials, here or (make cluster) on a Ray cluster (SWEEP=sweeps/allo_lr.yaml, ARGS='--address HOST:6379')
	@$(BIN)/python -m pipeline sweep $(or $(SWEEP),sweeps/allo_lr.yaml) $(ARGS)

params.schema.json: src/quatrain/params.py src/quatrain/section.py src/quatrain/models/*/config.py src/quatrain/envs/*/config.py | $(STAMP)
	@$(BIN)/python -m pipeline params schema

docs: .venv/.docs  ## the documentation site, into site/ (ARGS=serve: on http://127.0.0.1:8000 while you write)
	@$(BIN)/python -m mkdocs $(or $(ARGS),build --strict)

.venv/.docs: requirements/docs.txt $(STAMP)
	@$(LOCKED) -r $<
	@touch $@

new: $(STAMP)  ## a further model, which runs at once (NAME=my_model FRAMEWORK=jax|torch)
	@$(BIN)/python -m pipeline new $(NAME) --framework $(or $(FRAMEWORK),jax)

repro: $(STAMP) params.schema.json  ## collect, train, evaluate, report, compare with baselines (PRESET=, MODELS=, JOBS=)
	@$(BIN)/python -m pipeline repro --preset $(PRESET) --jobs $(JOBS) $(MODELS)

test: $(STAMP) cluster  ## the quick tests, before each commit (ARGS='-m slow': those that train for minutes)
	@$(if $(ARGS),,$(QUICK)) $(BIN)/python -m pytest $(or $(ARGS),$(PARALLEL) -m 'not full and not slow')

test-full: $(STAMP) moto cluster .venv/.docs  ## what CI runs: with servers, kills, remotes and clones, too
	@$(QUICK) $(BIN)/python -m pytest $(PARALLEL) -m 'not slow' $(ARGS)

check: $(STAMP) cluster  ## lint (Python, Dockerfile, shell, workflows), types, import contracts, code lines by folder
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tests/test_weight.py
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/shellcheck docs/cluster/slurm.sh
	@$(BIN)/zizmor --offline --quiet .github/workflows
	@if command -v actionlint >/dev/null; then actionlint; else echo "actionlint is not installed: .github/workflows/ci.yml runs it"; fi

lock: $(STAMP)  ## write requirements/*.txt from pyproject.toml and *.in; versions stay (ARGS=--upgrade, ARGS='--upgrade-package jax')
	@$(BIN)/python requirements/make_lock.py $(ARGS)

schema: params.schema.json  ## what editors complete and check params.yaml by; make repro writes it, too

ui: $(STAMP)  ## the MLflow UI: prints the address of its page of runs (PORT=)
	@exec $(BIN)/python -m pipeline ui $(if $(PORT),--port $(PORT))

experiments: $(STAMP)  ## experiments of `dvc exp run` side by side: the scores and params that differ
	@$(BIN)/dvc exp show --only-changed --drop '.*/' $(ARGS)

plots: $(STAMP)  ## curves and pictures that differ from those of a commit, into dvc_plots/differences.html (AGAINST=HEAD~1)
	@$(BIN)/python -m pipeline plots $(or $(AGAINST),HEAD)

sync: $(STAMP)  ## deliver pending metrics and files, set the aliases (ARGS=--from-start: send all anew)
	@$(BIN)/python -m pipeline sync $(ARGS)

gate: $(STAMP)  ## compare the current scores with the baselines; fails if one is broken (PRESET=, MODELS=, ARGS=--page: table of README.md)
	@$(BIN)/python -m pipeline gate --preset $(PRESET) $(MODELS) $(ARGS)

promote: $(STAMP)  ## store the current scores as the baseline; runs nothing (PRESET=, MODELS=, ARGS="--force --why '...'")
	@$(BIN)/python -m pipeline promote --preset $(PRESET) $(MODELS) $(ARGS)

retrain: $(STAMP)  ## fetch, repro in a copy, compare; propose what passed as a branch (ARGS='--push --seed new')
	@$(BIN)/python -m pipeline retrain --preset $(PRESET) --jobs $(JOBS) $(ARGS)

verify: $(STAMP)  ## hash cache and outs again and compare with dvc.lock
	@$(BIN)/python -m pipeline verify

grids: $(STAMP)  ## allo on every map of a folder with one preset (GRIDS=FOLDER or catalogue, PRESET=large, ARGS='--seeds 4')
	@$(BIN)/python -m pipeline grids $(GRIDS) --preset $(if $(filter default,$(PRESET)),large,$(PRESET)) $(ARGS)

states: $(STAMP)  ## allo on maps of 1,000 to 60,000 states: cost of each stage, and cosine (ARGS="'hall, 1,000' --steps 1000")
	@$(BIN)/python -m pipeline states $(ARGS)

fields: $(STAMP)  ## active_dynamics on the built-in fields with 2000 transitions: errors of three exploration policies (ARGS='--fields duffing')
	@$(BIN)/python -m pipeline fields $(ARGS)

decoders: $(STAMP)  ## active_dynamics' seq_vae with each decoder: errors of planned and random actions (ARGS='--decoders mlp')
	@$(BIN)/python -m pipeline decoders $(ARGS)

results: $(STAMP)  ## the default scores with five seeds, into docs/results.md, in about ten minutes (MODELS=, ARGS=)
	@$(BIN)/python -m pipeline results $(MODELS) $(ARGS)

bench: $(STAMP)  ## speed against the original programs and what was proposed for them, in 5 minutes (BENCH='allo iqn', ARGS=--compare; BENCH=loop: all around learning, in 20; BENCH=environments: those of others, in hours)
	@$(BIN)/python -m benchmarks.run $(BENCH) $(ARGS)

bench-peers: $(STAMP) .bench/peers/.installed  ## speed against other libraries, which it installs into .bench/peers
	@$(BIN)/python -m benchmarks.run peers $(ARGS)

.bench/peers/.installed: requirements/peers.txt
	@echo "bench-peers: installing other libraries into .bench/peers (some minutes, once)"
	@test -x .bench/peers/bin/python || $(PYTHON) -m venv .bench/peers
	@.bench/peers/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@.bench/peers/bin/python requirements/install_torch.py '$(TORCH_INDEX)'
	@touch $@

identify: $(STAMP)  ## the vector field of own recordings (ARGS="--recording FILE --actions u") or of a Gymnasium environment (ARGS="--system NAME")
	@$(BIN)/python -m pipeline identify $(ARGS)

profile: $(STAMP)  ## where a model's training spends its time: a trace, and a table (MODEL=)
	@$(BIN)/python -m pipeline profile $(MODEL) $(ARGS)

campaign: $(STAMP)  ## end each stage and command at some of its disk's operations, and fill its disk (POINTS=50, ARGS='-k promote')
	@$(BIN)/python -m pytest tests/campaign $(PARALLEL) $(ARGS)

clean:  ## remove what can be made again (not .venv, runs and undelivered metrics)
	@git clean -fdXq data models reports dvc_plots
	@rm -rf build dist .state/train@* .presets/*/data .presets/*/models .jax_cache .bench/compare .bench/profile .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
