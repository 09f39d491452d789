# Everything a fresh machine needs: Python >= 3.11 and make. Extra arguments for pip go through PIP_ARGS, for example
#   make quickstart PIP_ARGS="--index-url URL-of-a-CPU-build"
PYTHON ?= python3
PIP_ARGS ?=
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: quickstart dev test test-fast lint types package docs reference format clean help
help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# The stamps make a second run quick: pip is called only when the requirements have changed.
$(VENV)/.core: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.core

quickstart: $(VENV)/.core ## set up, then the whole story in two minutes
	@$(BIN)/litebert quickstart

dev: $(VENV)/.dev ## set up what developers need

test: $(VENV)/.dev ## set up, then run the whole test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal -q $(PYTEST_ARGS)

test-fast: $(VENV)/.dev ## the tests that take little time: under a minute on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow" -p no:schemathesis $(PYTEST_ARGS)

lint: $(VENV)/.dev ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## static types
	$(BIN)/mypy

package: $(VENV)/.dev ## build sdist and wheel, and try the wheel with the core alone, offline
	$(BIN)/python tools/package.py --out dist

format: $(VENV)/.dev ## rewrite files in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## the documentation as a site, in build/docs (to look at it: python -m http.server -d build/docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(VENV)/.dev ## write docs/cli.md and docs/api.md from the code
	$(BIN)/python tools/docs_reference.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache build dist
