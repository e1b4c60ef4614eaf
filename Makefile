# Every target sets up .venv by itself on first use; `make help` lists them.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-fast pythons simulate prove check format format-check lint imports types bench pictures clean

# The first interpreter that actually runs: a name on the path may be an empty shim.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3; do \
	"$$candidate" -c '' >/dev/null 2>&1 && echo "$$candidate" && break; done)
# Processes that share the tests, and anything to hand on to pytest or to the benchmarks.
JOBS ?= 4
ARGS ?=
# How much `make prove` tries: minutes in all, minutes of the soak, kills, seeds to simulate.
MINUTES ?=
SOAK ?= 10
KILLS ?= 30
SEEDS ?=

# Every process of the tests would compile everything again where this is set.
export PYTHONDONTWRITEBYTECODE :=

# The environment to work in and the extras of pyproject.toml in it; `make pythons` has one of each Python.
VENV ?= .venv
EXTRAS ?= dev
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What the edit loop runs: no test here needs a server or many processes.
FAST := tests/unit tests/architecture tests/testing tests/cli \
	tests/stores/test_memory.py tests/stores/sqlite/test_store.py
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## watch a shop through kill -9, an outage, a bug and a replay
	@$(BIN)/redrive demo

test: $(READY) ## run the tests (ARGS="-k breaker" narrows them, JOBS=8 spreads them)
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup $(ARGS) \
		&& echo "test: everything passed" \
		|| { echo "test: FAILED, the lines above name what broke"; exit 1; }

test-fast: $(READY) ## run those tests that are done within 90 s: unit, conformance without servers, CLI
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "not server" $(FAST) $(ARGS) \
		&& echo "test-fast: everything passed" \
		|| { echo "test-fast: FAILED, the lines above name what broke"; exit 1; }

pythons: $(READY) ## run the fast tests on each supported Python that is found (3.11, 3.12, 3.13)
	@$(BIN)/python -m tests.interpreters "$(MAKE)"

simulate: $(READY) ## run the engine in virtual time while all goes wrong (SEED=7, SEEDS=5000, MINUTES=30, STORE=postgres, PROJECTIONS=1, TRACKING=1, CROWDS=1, GATEWAY=1, BUGS=1)
	@$(BIN)/python -m tests.simulation $(SEED) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(STORE),--store $(STORE)) \
		$(if $(PROJECTIONS),--projections) $(if $(TRACKING),--tracking) $(if $(CROWDS),--crowds) \
		$(if $(GATEWAY),--gateway) $(if $(BUGS),--bugs) $(ARGS)

prove: $(READY) ## try to lose something for half an hour (MINUTES= SOAK= KILLS= SEEDS=, ARGS=soak alone)
	@$(BIN)/python -m tests.proof --minutes $(or $(MINUTES),30) --soak $(SOAK) --kills $(KILLS) \
		$(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

check: format-check lint imports types test ## all that must hold: format, lint, import contracts, types, tests
	@echo "check: everything holds"

format: $(READY) ## format the code and apply the safe lint fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

format-check: $(READY)
	@$(BIN)/ruff format --quiet --check . \
		|| { echo "format: run 'make format'"; exit 1; }
	@echo "format: in order"

lint: $(READY) ## look for mistakes with ruff
	@$(BIN)/ruff check --quiet .
	@echo "lint: in order"

imports: $(READY) ## check that imports point one way
	@found=$$($(BIN)/lint-imports --no-logo) || { echo "$$found"; exit 1; }
	@echo "imports: in order"

types: $(READY) ## check the types with mypy, strictly
	@$(BIN)/mypy --no-error-summary
	@echo "types: in order"

bench: $(READY) ## measure us, peers and limits (QUICK=1 in 10 minutes, ONLY="postgres drain" a part)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)") \
		$(if $(CONTINUE),--continue) $(ARGS)

pictures: $(READY) ## take the pictures of the dashboard in the docs anew (chromium)
	@$(BIN)/python -m tests.web.browser.pictures

clean: ## remove caches and build output (.venv stays)
	@rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The build backend comes from the constraints too, hence no build isolation.
$(READY): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
			echo "Redrive needs Python 3.11 or newer, and the Python found here is '$$("$(PYTHON)" -V 2>/dev/null || echo none)': name another with make PYTHON=/path/to/python3.11"; \
			exit 1; }; \
		echo "setting up $(VENV) with $$("$(PYTHON)" -V), which takes a minute the first time …"; \
		"$(PYTHON)" -m venv --clear $(VENV); }
	@echo "installing what pyproject.toml and constraints.txt ask for …"
	@$(PIP) install -qq -c constraints.txt hatchling editables
	@$(PIP) install -qq -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@
