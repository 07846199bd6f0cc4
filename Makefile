# Two commands for a newcomer: `make serve` and `make test`.
#
#   make serve ARGS="--port 9092 --ephemeral"    a broker, in a virtual environment made on the way
#   make test                                    linters, types, import contracts, all tests
#   make sim                                     what the simulator runs for every change: 100 seeds a kind of group
#   make soak SEEDS=0..99999                     as many seeds as you like, on from where it was
#   make bench                                   figures, beside those of Apache Kafka
#   make mutants                                 which of many planted bugs the simulator finds

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS ?=
TESTS ?= tests
WORKERS ?= 3
GROUPS ?= classic,static,mixed,consumer,consumer-static,migration,streams,streams-migration,share,transactional
SEEDS ?= 0..

.PHONY: serve test check pytest sim soak bench mutants docs clean

serve: $(VENV)/.installed
	$(BIN)/konvene serve $(ARGS)

test: check pytest

pytest: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations=40 $(TESTS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sim: $(VENV)/.installed
	$(BIN)/konvene sim run --seeds 0..99 --steps 5000 --groups $(GROUPS) --jobs $(WORKERS) $(ARGS)

soak: $(VENV)/.installed
	$(BIN)/konvene sim soak --seeds $(SEEDS) --groups $(GROUPS) $(ARGS)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(ARGS)

mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutation $(ARGS)

docs: $(VENV)/.installed-dev
	$(BIN)/python -m konvene.configs.reference docs/reference/configs.md
	$(BIN)/python -m konvene.sim.reference docs/reference/simulator.md
	$(BIN)/python -m konvene.broker.metrics.reference docs/reference/metrics.md
	$(BIN)/python -m konvene.pipeline.reference docs/reference/tables.md

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "konvene needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (make PYTHON=... chooses another)")'
	$(PYTHON) -m venv $(VENV)

# Where google-re2 has no wheel, a broker is served without it: fewer regular expressions are understood.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --only-binary google-re2 --editable '.[re2,metrics]' || $(PIP) --editable '.[metrics]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
