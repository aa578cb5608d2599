# Each target does its own set-up: Python >= 3.10 and make are all that a machine needs.
PYTHON ?= python3
VENV   := .venv
PEER   := .venv-peer
BIN    := $(VENV)/bin
PEER_VERSION := 0.31.0
TRAIN  := .venv-train

.PHONY: help setup train-env old-envs demo test test-all lint bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/ready.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The peer lives in an environment of its own, so that its dependencies never meet ours.
$(PEER)/ready.stamp: Makefile
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check 'wandb==$(PEER_VERSION)' numpy pillow soundfile
	@touch $@

# Training libraries, with the peer and us: real trainers log through both.
$(TRAIN)/ready.stamp: Makefile pyproject.toml
	$(PYTHON) -m venv $(TRAIN)
	$(TRAIN)/bin/python -m pip install --quiet --disable-pip-version-check --editable . 'wandb==$(PEER_VERSION)' torch==2.13.0 \
		transformers==5.23.0 accelerate==1.15.0 lightning==2.6.6 matplotlib==3.11.2 plotly==7.1.0 jax==0.10.2 numpy pillow
	@touch $@

setup: $(VENV)/ready.stamp ## make the virtual environment

train-env: $(TRAIN)/ready.stamp ## make the environment of the training tests (gigabytes where torch comes with CUDA)

old-envs: $(PEER)/ready.stamp ## environments of old versions of the peer (1.3 GB, minutes the first time)
	$(PYTHON) tests/support/old.py

demo: setup ## a real training run, sampled, logged, synced and shown, in about ten seconds
	$(BIN)/python examples/demo.py

test: setup $(PEER)/ready.stamp ## the tests (minutes)
	$(BIN)/python -m pytest tests -m 'not slow' -n 2 --dist loadfile

test-all: setup $(PEER)/ready.stamp $(TRAIN)/ready.stamp old-envs ## the tests and the long matrices
	$(BIN)/python -m pytest tests -n 2 --dist loadfile

lint: setup ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p .typecheck && ln -sfn "$(CURDIR)" .typecheck/runferry
	cd .typecheck && ../$(BIN)/mypy --config-file ../pyproject.toml -p runferry.logformat -p runferry.writer -p runferry.sampler -p runferry.sync -p runferry.backend -p runferry.bundle -p runferry.export -p runferry.viewer -p runferry.cli

bench: setup $(PEER)/ready.stamp ## measure beside the peer; prints the table of benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run_all.py

clean: ## remove everything that the targets above made
	rm -rf $(VENV) $(PEER) $(TRAIN) .venv-old-* .venv-protobuf-* .typecheck .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo build dist *.egg-info
	find . -name __pycache__ -not -path "./.venv*" -prune -exec rm -rf {} +
