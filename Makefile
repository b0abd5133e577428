# specdrift. `make` lists the targets. `make demo` and `make test` need only Python 3.11 or newer.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
UV_VERSION := 0.13.8

# The requirement files are complete, so pip need not resolve (--no-deps); compiling afterwards
# uses every core, which pip does not.
INSTALL := $(PIP) install --quiet --no-deps --no-compile --require-hashes
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib monitor >/dev/null || true
LOCK := .lock-venv/bin/uv pip compile pyproject.toml requirements/build.in --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	--no-annotate

# Arguments for the thing that is run: make demo ARGS="--scenario mix-shift", make unit ARGS="-k arl"
ARGS ?=
# Two workers; end-to-end tests stay together on one of them (tests/conftest.py).
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
PARALLEL := --numprocesses=$(WORKERS) --dist=loadgroup

export PIP_ROOT_USER_ACTION := ignore
unexport PYTHONPATH

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install install-dev demo test lint format typecheck contracts unit e2e schemas lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[1m%-11s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments ------------------------------------------------------------------------------
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "specdrift needs Python 3.11 or newer on the PATH; set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "cannot create $(VENV): install the venv module of $(PYTHON) (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.run: requirements/run.txt | $(BIN)/python
	@echo "installing into $(VENV) (about half a minute)"
	@$(INSTALL) -r requirements/run.txt
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: requirements/dev.txt | $(BIN)/python
	@echo "installing the development tools into $(VENV) (about a minute)"
	@$(INSTALL) -r requirements/dev.txt
	@$(COMPILE)
	@touch $(VENV)/.run $@

# The package itself, editable. Order-only on the requirements: they do not change how it is built.
$(VENV)/.package: pyproject.toml | $(VENV)/.run
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

install: $(VENV)/.run $(VENV)/.package ## Install what running needs into .venv
install-dev: $(VENV)/.dev $(VENV)/.package ## Install what developing and testing need into .venv

# --- running -----------------------------------------------------------------------------------
demo: install ## Run the whole story with a simulated engine (ARGS="--scenario NAME")
	@$(BIN)/specdrift demo $(ARGS)

# --- checking ----------------------------------------------------------------------------------
test: lint typecheck contracts ## Everything: lint, types, import contracts, all tests, coverage
	@$(PYTEST) $(PARALLEL) --cov --cov-report=term $(ARGS)

lint: install-dev ## Style (ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: install-dev ## Rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

typecheck: install-dev ## Types (mypy --strict)
	@$(BIN)/mypy

contracts: install-dev ## Who may import whom (import-linter)
	@$(BIN)/lint-imports --no-logo

unit: install-dev ## The quick tests: unit, property, golden
	@$(PYTEST) tests/unit tests/property tests/golden $(ARGS)

e2e: install-dev ## The product as a user starts it
	@$(PYTEST) tests/e2e $(ARGS)

# --- generating --------------------------------------------------------------------------------
schemas: install-dev ## Regenerate the committed schemas
	@$(BIN)/python -m specdrift.cli.schemas

lock: ## Pin the requirement files anew (to update all: make lock ARGS=--upgrade)
	@test -x .lock-venv/bin/uv || { $(PYTHON) -m venv .lock-venv && .lock-venv/bin/pip install --quiet uv==$(UV_VERSION); }
	@$(LOCK) $(ARGS) --extra dashboard --output-file requirements/run.txt >/dev/null
	@$(LOCK) $(ARGS) --extra dashboard --extra kubernetes --extra dev \
		--constraints requirements/run.txt --output-file requirements/dev.txt >/dev/null
	@! grep -n '://' requirements/*.txt

clean: ## Remove environments, caches and builds
	rm -rf $(VENV) .lock-venv .cache .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache build dist htmlcov
	find monitor dashboards tests -name __pycache__ -type d -prune -exec rm -rf {} +
