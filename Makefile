SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
# Python of a new .venv: what is asked for, else the first of these that runs.
ASKED := $(filter-out undefined,$(origin PYTHON))
ifeq ($(ASKED),)
PYTHON = $(or $(wildcard $(BIN)/python),$(shell for each in python3.11 python3.12 python3.13; do $$each -c '' 2>/dev/null && echo $$each && break; done))
endif
PYTHON_VERSION := 'import sys; print("%d.%d" % sys.version_info[:2])'
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

# Whether a variable is one of the command line.
given = $(filter command,$(origin $(1)))
# Refuses a variable of the command line that none of its targets reads.
read_by = $(if $(and $(MAKECMDGOALS),$(call given,$(1))),$(if $(filter $(2),$(MAKECMDGOALS)),,$(error make $(MAKECMDGOALS) has no $(1); these have: $(2))))
$(call read_by,PRESET,repro gate promote rollback retrain grids)
$(call read_by,MODELS,repro gate promote results)
$(call read_by,JOBS,repro back retrain)
$(call read_by,MODEL,profile compare rollback)
$(call read_by,VERSION,rollback)

.PHONY: help setup moto cluster docs new compare sweep repro test test-full check lock schema ui experiments plots sync back gate promote rollback retrain verify identify grids states fields decoders results bench bench-peers profile campaign clean

# Groups of the menu: a target is in the one whose number is after its `##`.
GROUPS := '1 first steps' '2 change and compare' '3 look' '4 baselines and the registry' '5 data of your own' '6 developing'

help:  ##1 this menu
	@for group in $(GROUPS); do echo "$${group#* }:"; \
	  grep -hE "^[a-z-]+:.*##$${group%% *} " $(MAKEFILE_LIST) | awk -F':.*##. ' '{printf "  make %-11s  %s\n", $$1, $$2}'; done
	@echo "variables: PRESET=$(PRESET)  MODELS='allo'  JOBS=$(JOBS)  GRIDS=$(GRIDS)  BENCH='allo iqn'  MODEL=$(MODEL)"

setup: $(STAMP)  ##1 install the locked packages into .venv (PYTHON=python3.12, TORCH_INDEX=URL)
	@$(BIN)/python requirements/install_torch.py '$(TORCH_INDEX)'

# The path comes before setuptools' finder of editable packages: beside a clone named quatrain, that folder is no package.
$(STAMP): pyproject.toml .venv/.locked | same-python
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo '$(CURDIR)/src' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/quatrain.pth"
	@touch $@

.venv/.locked: $(SETUP:%=requirements/%.txt) requirements/torch.txt | same-python
	@case "$$($(PYTHON) -c $(PYTHON_VERSION))" in 3.1[123]) ;; *) echo "setup: Python 3.11, 3.12 or 3.13 is needed, and '$(PYTHON)' is none; install one, or name one by PYTHON=" >&2; exit 2;; esac
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "setup: installing into .venv (some minutes, once)"
	@for part in $(SETUP); do $(LOCKED) -r requirements/$$part.txt || exit; done
	@$(BIN)/python requirements/install_torch.py '$(TORCH_INDEX)'
	@touch $@

# A .venv keeps its Python: who asks for another is told so, and nothing is mixed.
.PHONY: same-python
same-python:
	@test -z "$(ASKED)" || test ! -x $(BIN)/python || test "$$($(PYTHON) -c $(PYTHON_VERSION))" = "$$($(BIN)/python -c $(PYTHON_VERSION))" || { echo "setup: .venv is of Python $$($(BIN)/python -c $(PYTHON_VERSION)), not of $(PYTHON); move it away, or use another checkout" >&2; exit 2; }

moto: .venv/moto/.installed  ##6 install an S3 server for the tests of remotes

.venv/moto/.installed: requirements/moto.txt $(STAMP)
	@test -x .venv/moto/bin/python || $(PYTHON) -m venv .venv/moto
	@.venv/moto/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

cluster: .venv/.cluster  ##6 install Ray: sweep and compare on several machines (--address), and its tests

.venv/.cluster: requirements/cluster.txt $(STAMP)
	@$(LOCKED) -r $<
	@touch $@

compare: $(STAMP)  ##2 did a change help? (MODEL=, ARGS='-S train.steps=2000' or '--against HEAD~1')
	@$(BIN)/python -m pipeline compare $(MODEL) $(ARGS)

sweep: $(STAMP)  ##2 search parameters by trials (SWEEP=sweeps/allo_lr.yaml, ARGS=)
	@$(BIN)/python -m pipeline sweep $(or $(SWEEP),sweeps/allo_lr.yaml) $(ARGS)

params.schema.json: src/quatrain/params.py src/quatrain/section.py src/quatrain/models/*/config.py src/quatrain/envs/*/config.py | $(STAMP)
	@$(BIN)/python -m pipeline params schema

docs: .venv/.docs  ##6 the documentation site, into site/ (ARGS=serve: while you write)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(or $(ARGS),build --strict)

.venv/.docs: requirements/docs.txt $(STAMP)
	@$(LOCKED) -r $<
	@touch $@

new: $(STAMP)  ##6 a further model, which runs at once (NAME=my_model FRAMEWORK=jax|torch)
	@$(BIN)/python -m pipeline new $(NAME) --framework $(or $(FRAMEWORK),jax)

repro: $(STAMP) params.schema.json  ##1 collect, train, evaluate, report, judge (PRESET=, MODELS=, JOBS=, ARGS=-v)
	@$(BIN)/python -m pipeline repro --preset $(PRESET) --jobs $(JOBS) $(MODELS) $(ARGS)

test: $(STAMP) cluster  ##1 the quick tests, before each commit (ARGS='-m slow': those that train)
	@$(if $(ARGS),,$(QUICK)) $(BIN)/python -m pytest $(or $(ARGS),$(PARALLEL) -m 'not full and not slow')

test-full: $(STAMP) moto cluster .venv/.docs  ##6 what CI runs: with servers, kills, remotes and clones, too
	@$(QUICK) $(BIN)/python -m pytest $(PARALLEL) -m 'not slow' $(ARGS)

check: $(STAMP) cluster  ##6 lint, types, import contracts, code lines by folder
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tests/test_weight.py
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/shellcheck docs/cluster/slurm.sh
	@$(BIN)/zizmor --offline --quiet .github/workflows
	@if command -v actionlint >/dev/null; then actionlint; else echo "actionlint is not installed: .github/workflows/ci.yml runs it"; fi

lock: $(STAMP)  ##6 write requirements/*.txt anew; versions stay (ARGS='--upgrade-package jax')
	@$(BIN)/python requirements/make_lock.py $(ARGS)

schema: params.schema.json  ##2 what editors complete and check params.yaml by; make repro writes it, too

ui: $(STAMP)  ##3 the MLflow UI: prints the address of its page of runs (PORT=)
	@exec $(BIN)/python -m pipeline ui $(if $(PORT),--port $(PORT))

experiments: $(STAMP)  ##2 experiments of `dvc exp run`: the scores and params that differ
	@$(BIN)/dvc exp show --only-changed --drop '.*/' $(ARGS)

plots: $(STAMP)  ##3 what differs from a commit in curves and pictures (AGAINST=HEAD~1)
	@$(BIN)/python -m pipeline plots $(or $(AGAINST),HEAD)

sync: $(STAMP)  ##4 deliver pending metrics and files, set the aliases (ARGS=--from-start)
	@$(BIN)/python -m pipeline sync $(ARGS)

back: $(STAMP)  ##2 go back to the last commit: its params, lock, reports and models
	@$(BIN)/python -m pipeline back --jobs $(JOBS) $(ARGS)

gate: $(STAMP)  ##4 compare scores with baselines (PRESET=, MODELS=, ARGS=--page: README.md's table)
	@$(BIN)/python -m pipeline gate --preset $(PRESET) $(MODELS) $(ARGS)

promote: $(STAMP)  ##4 store the scores as baseline (PRESET=, MODELS=, ARGS="--force --why '...'")
	@$(BIN)/python -m pipeline promote --preset $(PRESET) $(MODELS) $(ARGS)

rollback: $(STAMP)  ##4 make an earlier version the champion, with its baseline (MODEL=, VERSION=)
	@$(if $(call given,MODEL),,$(error rollback: name the model: make rollback MODEL=allo))$(BIN)/python -m pipeline rollback --preset $(PRESET) $(if $(call given,VERSION),--version $(VERSION)) $(MODEL) $(ARGS)

retrain: $(STAMP)  ##4 run the commit again, propose what passed as a branch (ARGS='--push --seed new')
	@$(BIN)/python -m pipeline retrain --preset $(PRESET) --jobs $(JOBS) $(ARGS)

verify: $(STAMP)  ##4 hash cache and outs again and compare with dvc.lock
	@$(BIN)/python -m pipeline verify

grids: $(STAMP)  ##5 allo on every map of a folder (GRIDS=FOLDER, PRESET=large, ARGS='--seeds 4')
	@$(BIN)/python -m pipeline grids $(GRIDS) --preset $(if $(filter default,$(PRESET)),large,$(PRESET)) $(ARGS)

states: $(STAMP)  ##6 allo on maps of 1,000 to 60,000 states: cost and cosine (ARGS=)
	@$(BIN)/python -m pipeline states $(ARGS)

fields: $(STAMP)  ##6 active_dynamics on each built-in field (ARGS='--fields duffing')
	@$(BIN)/python -m pipeline fields $(ARGS)

decoders: $(STAMP)  ##6 active_dynamics' seq_vae with each decoder (ARGS='--decoders mlp')
	@$(BIN)/python -m pipeline decoders $(ARGS)

results: $(STAMP)  ##6 the default scores with five seeds, into docs/results.md, ten minutes (MODELS=)
	@$(BIN)/python -m pipeline results $(MODELS) $(ARGS)

bench: $(STAMP)  ##6 speed beside the original programs, 5 minutes (BENCH='allo iqn' | loop, ARGS=)
	@$(BIN)/python -m benchmarks.run $(BENCH) $(ARGS)

bench-peers: $(STAMP) .bench/peers/.installed  ##6 speed beside other libraries, which it installs into .bench/peers
	@$(BIN)/python -m benchmarks.run peers $(ARGS)

.bench/peers/.installed: requirements/peers.txt
	@echo "bench-peers: installing other libraries into .bench/peers (some minutes, once)"
	@test -x .bench/peers/bin/python || $(PYTHON) -m venv .bench/peers
	@.bench/peers/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@.bench/peers/bin/python requirements/install_torch.py '$(TORCH_INDEX)'
	@touch $@

identify: $(STAMP)  ##5 the field of a recording (ARGS="--recording FILE --actions u") or --system NAME
	@$(BIN)/python -m pipeline identify $(ARGS)

profile: $(STAMP)  ##3 where a model's training spends its time: a trace, and a table (MODEL=)
	@$(BIN)/python -m pipeline profile $(MODEL) $(ARGS)

campaign: $(STAMP)  ##6 end stages at operations of their disk, and fill it (POINTS=50, ARGS=)
	@$(BIN)/python -m pytest tests/campaign $(PARALLEL) $(ARGS)

clean:  ##6 remove what can be made again (not .venv, runs and undelivered metrics)
	@git clean -fdXq data models reports dvc_plots
	@rm -rf build dist .state/train@* .presets/*/data .presets/*/models .jax_cache .bench/compare .bench/profile .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
