# Targets of this repository alone: its checks, documents, studies and benchmarks. A project of `quatrain init` has none of them.
GRIDS ?= inputs/allo
BENCH ?=
EMPTY :=
MORE_VARIABLES = $(EMPTY)  GRIDS=$(GRIDS)  BENCH='allo iqn'

.PHONY: check-repository moto docs test-full grids states fields decoders results bench bench-peers identify campaign

moto: .venv/moto/.installed  ##6 install an S3 server for the tests of remotes

.venv/moto/.installed: requirements/moto.txt $(STAMP)
	@test -x .venv/moto/bin/python || $(PYTHON) -m venv .venv/moto
	@.venv/moto/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

docs: .venv/.docs  ##6 the documentation site, into site/ (ARGS=serve: while you write)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(or $(ARGS),build --strict)

.venv/.docs: requirements/docs.txt $(STAMP)
	@$(LOCKED) -r $<
	@touch $@

test-full: $(STAMP) moto cluster .venv/.docs  ##6 what CI runs: with servers, kills, remotes and clones, too
	@$(QUICK) $(BIN)/python -m pytest $(PARALLEL) -m 'not slow' $(ARGS)

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

campaign: $(STAMP)  ##6 end stages at operations of their disk, and fill it (POINTS=50, ARGS=)
	@$(BIN)/python -m pytest tests/campaign $(PARALLEL) $(ARGS)

test check: cluster

check: check-repository

# Import contracts, code lines by folder, and files that are not Python.
check-repository: $(STAMP) cluster
	@$(BIN)/lint-imports
	@$(BIN)/python tests/test_weight.py
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/shellcheck docs/cluster/slurm.sh
	@$(BIN)/zizmor --offline --quiet .github/workflows
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.gitlab-ci docs/ci/gitlab-ci.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml
	@if command -v actionlint >/dev/null; then actionlint; else echo "actionlint is not installed: .github/workflows/ci.yml runs it"; fi
