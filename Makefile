# Two commands for a newcomer: `make serve` and `make test`.
#
#   make serve ARGS="--port 9092 --ephemeral"    a broker, in a virtual environment made on the way
#   make test                                    linters, types, import contracts, all tests
#   make bench                                   figures, beside those of Apache Kafka
#   make mutants                                 which of many planted bugs the simulator finds

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
TESTS ?= tests
WORKERS ?= 2

.PHONY: serve test check bench mutants docs clean

serve: $(VENV)/.installed
	$(BIN)/konvene serve $(ARGS)

test: check
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(ARGS)

mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutation $(ARGS)

docs: $(VENV)/.installed-dev
	$(BIN)/python -m konvene.configs.reference docs/reference/configs.md

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "konvene needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (make PYTHON=... chooses another)")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
