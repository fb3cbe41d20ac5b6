# Every target sets up what it needs on a machine with nothing but CPython and pip:
#   make demo | test | opcheck | bench | bench-ops | bench-train | bench-deploy | bench-alternate | deploy-tools | attack |
#        conformance | frontends | fuzz | fuzz-programs | singular | relay | lint | codegen | codegen-check | docs |
#        pictures | check-wheel | release | venv | clean
# PYTHON chooses the interpreter that the environment is made with (3.10 to 3.13), JOBS the test workers.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
BENCH_OPS_ARGS ?=
BENCH_TRAIN_ARGS ?=
BENCH_DEPLOY_ARGS ?=
OLD ?= HEAD
BENCH_ALTERNATE_ARGS ?=
OPCHECK_ARGS ?=
ATTACK_ARGS ?=
RELEASE_ARGS ?=
SINGULAR_ARGS ?=
CONFORMANCE_ARGS ?=
FUZZ_ARGS ?= --count 4000
FUZZ_PROGRAMS_ARGS ?= 500
# Relay programs with expected outputs, and judges of readers of models, which are not part of this repository.
RELAY_CORPUS ?= ../shared/reference/relay_corpus
CONFORMANCE ?= ../shared/conformance
FRONTENDS_ARGS ?=
# Models that the judges export and compile. torchvision has no wheel for torch's CPU build: without its dependencies.
FRONTEND_MODELS := timm==1.0.31 transformers==5.23.0 torchvision==0.28.0
FRONTEND_MODELS_NEED := pillow huggingface_hub tokenizers regex requests tqdm pyyaml safetensors

BIN := $(VENV)/bin
# The versions that tests run with: without a pin, pip takes torch's newest release with gigabytes of CUDA libraries.
CONSTRAINTS ?= constraints.txt
INSTALL := -m pip install -qq --disable-pip-version-check --constraint $(CONSTRAINTS)
# Where check-wheel installs the wheel with its hard requirements only: an environment without torch.
BARE := build/bare
TORCH_FREE_TESTS := $(addprefix tests/python/,test_distribution.py test_operator_package.py test_without_torch.py)
# One thread a process, so that timings compare kernels and not thread pools (tests/conftest.py does the same for tests).
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TVM_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test opcheck bench bench-ops bench-train bench-deploy bench-alternate deploy-tools attack conformance frontends fuzz fuzz-programs singular relay lint lint-style lint-imports lint-types codegen codegen-check docs pictures check-wheel clean

help:
	@sed -n '1,4s/^# *//p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; (3, 10) <= sys.version_info[:2] <= (3, 13) or sys.exit("meta needs CPython 3.10 to 3.13; PYTHON=$(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# One stamp for what the demo needs and one for development, so that `make demo` does not wait for the linters.
$(VENV)/.run: pyproject.toml setup.py $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing meta, apache-tvm and torch into $(VENV) (about a minute) ..."
	@$(BIN)/python $(INSTALL) --editable '.[torch,demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing meta, apache-tvm, torch and the development tools into $(VENV) (one to two minutes) ..."
	@$(BIN)/python $(INSTALL) --editable '.[torch,demo,test,docs,dev]'
	@touch $(VENV)/.run $@

# What cannot be installed is skipped by the judges, with the reason.
$(VENV)/.frontends: $(VENV)/.dev
	@echo "Installing models for the judges of frontends into $(VENV) ..."
	-@$(BIN)/python $(INSTALL) --no-deps $(FRONTEND_MODELS)
	-@$(BIN)/python $(INSTALL) $(FRONTEND_MODELS_NEED)
	@touch $@

venv: $(VENV)/.dev

demo: $(VENV)/.run
	$(BIN)/python -m meta demo $(DEMO_ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TEST_ARGS)

# Every check of meta.testing.opcheck on every operator and sample: about 20 minutes on one core.
opcheck: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m scripts.opcheck $(OPCHECK_ARGS)

bench: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m benchmarks $(BENCH_ARGS)

# Every operator with a TVM kernel, small and large, forward and backward, against torch. By parts:
# make bench-ops BENCH_OPS_ARGS="--only 'conv*' --seconds 60"; the page has all rows measured since build/ was removed.
bench-ops: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m benchmarks.ops --results build/operator-times.jsonl --page docs/measurements/operator-times.md $(BENCH_OPS_ARGS)

# Every row runs in a process with its own number of threads: about 20 minutes.
bench-train: $(VENV)/.dev
	$(BIN)/python -m benchmarks.train --corpus $(RELAY_CORPUS) $(BENCH_TRAIN_ARGS)

# Ten networks as C, for inference and training, on emulated machines: half an hour without ResNet-18, which takes hours.
# BENCH_DEPLOY_ARGS=--times measures the C call on this machine.
bench-deploy: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m benchmarks.deploy $(BENCH_DEPLOY_ARGS)

# Debian's cross compilers and emulators, without which the tests of other machines are skipped.
deploy-tools: $(VENV)/.dev
	$$(test $$(id -u) = 0 || echo sudo) apt-get install -y $$($(BIN)/python -m benchmarks.deploy --packages)

# Rows that are slower in the working tree than in OLD. Another suite: BENCH_ALTERNATE_ARGS="--suite train --part mlp"
bench-alternate: $(VENV)/.dev
	$(BIN)/python -m benchmarks.alternate $(OLD) $(BENCH_ALTERNATE_ARGS)

relay: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m scripts.relay_corpus $(RELAY_CORPUS)

# Every operator against the samples that torch keeps for it, eager and compiled: hours on one core. A run that was
# stopped goes on until the code changes (results are in build/conformance); CONFORMANCE_ARGS="--processes 16" uses
# 16 cores. By parts: make conformance CONFORMANCE_ARGS="'linalg.*' --samples 4"
conformance: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m tests.python.conformance --page docs/measurements/conformance.md $(CONFORMANCE_ARGS)

# The readers of ONNX, PyTorch and Relay models, bounded: minutes. On all tests and models, for hours:
# make frontends FRONTENDS_ARGS=--whole
frontends: $(VENV)/.frontends
	$(ONE_THREAD) $(BIN)/python -m tests.python.conformance.frontends --conformance $(CONFORMANCE) --corpus $(RELAY_CORPUS) \
		--page docs/measurements/frontends.md $(FRONTENDS_ARGS)

# Random calls of all operators, from samples and from schemas: a minute; FUZZ_ARGS="--count 1000000 --processes 2" for long.
fuzz: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m tests.attack calls schemas $(FUZZ_ARGS)

# Random programs, compiled in several ways; FUZZ_PROGRAMS_ARGS="10000 --workers 2" takes an hour or two.
fuzz-programs: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m scripts.fuzz_programs $(FUZZ_PROGRAMS_ARGS)
	$(ONE_THREAD) $(BIN)/python -m scripts.fuzz_kernels 500
	$(ONE_THREAD) $(BIN)/python -m scripts.fuzz_formulas 2000
	$(ONE_THREAD) $(BIN)/python -m scripts.fuzz_compile 200
	$(ONE_THREAD) $(BIN)/python -m scripts.fuzz_writes 2000 --vm 100
	$(ONE_THREAD) $(BIN)/python -m tests.python.deploy.altered_calls 100000

# Derivatives beside singular points, of all elementwise operators: half an hour. By parts:
# make singular SINGULAR_ARGS="'sinc' 'log*' --dtypes float32 --modes eager"
singular: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m tests.python.singular $(SINGULAR_ARGS)

attack: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m tests.attack $(ATTACK_ARGS)

lint: lint-style lint-imports lint-types

lint-style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.prose

lint-imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

lint-types: $(VENV)/.dev
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

codegen: $(VENV)/.dev
	$(BIN)/python -m scripts.src_codegen

codegen-check: $(VENV)/.dev
	$(BIN)/python -m scripts.src_codegen --check

# The site in build/docs, warnings as errors, and every code block of the pages.
docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -q -W --keep-going -t source -b html docs build/docs
	$(BIN)/python -m pytest tests/docs $(TEST_ARGS)

# docs/pictures, from tables of the pages and from text.
pictures: $(VENV)/.dev
	$(BIN)/python -m scripts.pictures

# The wheel as a user gets it, away from the source tree: it imports, its command runs, its data came along, a package of
# operators installs beside it and runs, and what does not need torch works where torch is not installed.
check-wheel: | $(BIN)/python
	rm -rf build dist
	$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python -m venv $(BARE)
	$(BARE)/bin/python $(INSTALL) dist/*.whl pytest pytest-timeout "setuptools>=77.0.3"
	$(BARE)/bin/python -m pip check
	! $(BARE)/bin/python -c 'import torch' 2>/dev/null
	cp -r tests pyproject.toml $(BARE)
	cd $(BARE) && bin/meta --help
	cd $(BARE) && bin/python -m pytest $(TORCH_FREE_TESTS)

# Wheel and sdist in dist/, checked in fresh environments of the interpreters at hand; see scripts/release.py.
# Parts: make release RELEASE_ARGS="--python python3.12 --no-docs"
.PHONY: release
release: $(VENV)/.dev
	$(BIN)/python $(INSTALL) --editable '.[release]'
	$(BIN)/python -m scripts.release $(RELEASE_ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
