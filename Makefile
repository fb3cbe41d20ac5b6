# Every target sets up what it needs on a machine with nothing but CPython and pip:
#   make demo | test | bench | lint | codegen | docs | clean
# PYTHON chooses the interpreter that the environment is made with (3.10 to 3.13), JOBS the test workers.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=

BIN := $(VENV)/bin
SETUP := pyproject.toml setup.py
# One thread a process, so that timings compare kernels and not thread pools (tests/conftest.py does the same for the tests).
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TVM_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test bench lint format codegen codegen-check docs wheel clean

help:
	@sed -n '2,3s/^# *//p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 10) <= sys.version_info[:2] <= (3, 13) else "meta needs CPython 3.10 to 3.13, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# One stamp for what the demo needs and one for development, so that `make demo` does not wait for the linters.
$(VENV)/.run: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,demo]'
	@touch $@

$(VENV)/.dev: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,demo,test,dev]'
	@touch $(VENV)/.run $@

venv: $(VENV)/.dev

demo: $(VENV)/.run
	$(BIN)/python -m meta demo $(DEMO_ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

bench: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m benchmarks $(BENCH_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

codegen: $(VENV)/.dev
	$(BIN)/python -m scripts.src_codegen

codegen-check: $(VENV)/.dev
	$(BIN)/python -m scripts.src_codegen --check

docs: $(VENV)/.dev
	$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
