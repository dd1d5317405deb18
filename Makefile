# Everything that CI runs is a target here. `make help` lists them.
PYTHON ?= python3
PIP_ARGS ?=
CONSTRAINTS ?= constraints.txt
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check $(PIP_ARGS)
PYTEST := $(BIN)/python -m pytest
# Tiny tensors gain nothing from threads, which only wait for each other on a busy machine.
TINY := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
JOBS ?= 2
SIDE_BY_SIDE := -n $(JOBS) --dist loadgroup
DEV := $(VENV)/.installed-dev
DEMO := $(VENV)/.installed-demo

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help dev lint types format test test-fast test-slow test-gpu lowest cases detection smoke wheel-check bench gpu-check real real-noise demo all clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(DEMO) ## the main job: anchor-a varies unpatched (exit 1, checked) and does not vary patched
	@echo 'swarepro determinism anchor-a --unpatched --repeats 6'
	@$(BIN)/swarepro determinism anchor-a --unpatched --repeats 6; code=$$?; \
	test $$code -eq 1 || { echo "demo: exit $$code; 1 was wanted: the defect has to be found" >&2; exit 1; }
	@echo 'swarepro determinism anchor-a --repeats 6'
	@$(BIN)/swarepro determinism anchor-a --repeats 6

test: lint types test-fast test-slow wheel-check real smoke ## lint, types, every test (all cases among them), the smoke job

dev: $(DEV) ## create .venv and install everything that the other targets need

lint: $(DEV) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV) ## mypy, strict
	$(BIN)/mypy

format: $(DEV) ## rewrite the source in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-fast: $(DEV) ## unit, kernel, case and CLI tests
	$(TINY) $(PYTEST) $(SIDE_BY_SIDE) -m "not slow and not gpu and not real and not packaging"

test-slow: $(DEV) ## the tests marked slow
	$(TINY) $(PYTEST) $(SIDE_BY_SIDE) -m "slow and not gpu and not real and not packaging"

test-gpu: $(DEV) ## the tests that need a CUDA device
	$(PYTEST) -m gpu

real: $(DEV) ## the tests on the packaged Gemma 3 270M weights
	$(PYTEST) -m "real and not slow and not gpu"

real-noise: $(DEV) ## 45 legal pairs and 42 faulty ones on the packaged weights in bf16; minutes
	$(TINY) $(PYTEST) -m "real and slow and not gpu"

wheel-check: $(DEV) ## build sdist and wheel, look inside, install, run away from the checkout
	$(PYTEST) -m packaging

smoke: $(DEV) ## anchors: nondeterministic at the right boundary unpatched, deterministic patched
	$(BIN)/python tests/smoke.py

cases: $(DEV) ## run every shipped case and judge it by its own [expect]
	$(BIN)/swarepro cases run --all

detection: $(DEV) ## write docs/detection.md: what each detector answers to each fault
	$(BIN)/swarepro cases run --all --markdown docs/detection.md

bench: $(DEV) ## speed and memory as ratios measured in one run; nothing is judged
	$(BIN)/python -m bench

gpu-check: $(DEV) ## on a machine with a GPU, 4 minutes at most: kernel tests, the defect, speed
	$(BIN)/python -m bench.gpu --json gpu-check.json

lowest: ## the fast tests on the lower bounds of pyproject.toml, in .venv-lowest
	$(MAKE) test-fast VENV=.venv-lowest CONSTRAINTS=.venv-lowest/lowest.txt

all: test bench ## test and bench

clean: ## remove the virtual environments, caches and build outputs
	rm -rf .venv .venv-lowest build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find swarepro kernels tests bench -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("swarepro needs Python 3.11 or newer, found %d.%d; set PYTHON=" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/lowest.txt: pyproject.toml tests/packaging/lowest.py | $(VENV)/bin/python
	$(BIN)/python tests/packaging/lowest.py > $@

$(DEV): pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@echo "installing swarepro with its development tools into $(VENV); this takes a few minutes once"
	$(PIP) -c $(CONSTRAINTS) -e '.[dev,gguf,hf]'
	@touch $@

$(DEMO): pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@echo "installing swarepro into $(VENV); this takes a few minutes once"
	@test -e $(DEV) -a $(DEV) -nt pyproject.toml || $(PIP) -c $(CONSTRAINTS) -e .
	@touch $@
