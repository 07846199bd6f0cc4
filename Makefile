# Two commands for a newcomer: `make serve` and `make test`. Each makes its virtual environment first.
#
#   make serve ARGS="--port 9092 --ephemeral"    a broker
#   make test                                    linters, types, and the tests without Java, Spark and a browser,
#                                                with fewer seeds and generated examples
#   make test-all                                all tests, with fewer seeds and generated examples
#   make test-deep                               all tests in full depth, as CI runs them
#   make pytest TESTS=tests/groups               one part of the tests
#   make pytest DEPTH=--soak                     all tests, with more seeds, kills and generated examples
#   make sim                                     100 seeds of each kind of group
#   make soak SEEDS=0..99999                     any number of seeds; continues where it stopped
#   make bench                                   figures, beside those of Apache Kafka
#   make mutants                                 plants bugs one at a time; the simulator has to find them
#   make docs                                    the generated pages under docs/reference
#   make site                                    the documentation as a site, in site/
#   make release                                 builds and checks the sdist and the wheel of a tagged commit, in dist/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS ?=
TESTS ?= tests
WORKERS ?= 4
SELECT ?=
DEPTH ?=
GROUPS ?= classic,static,mixed,consumer,consumer-static,migration,streams,streams-migration,share,transactional
SEEDS ?= 0..

# Tests start hundreds of processes: let them load compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test test-all test-deep check pytest sim soak bench mutants docs site release clean

serve: $(VENV)/.installed
	$(BIN)/konvene serve $(ARGS)

test: check
	$(MAKE) pytest SELECT="not external" DEPTH=--quick

test-all: check
	$(MAKE) pytest DEPTH=--quick

test-deep: check pytest

pytest: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations=40 -m "$(SELECT)" $(DEPTH) $(TESTS)

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
	$(BIN)/python -m konvene.cli.reference docs/reference/cli.md
	$(BIN)/python -m konvene.configs.reference docs/reference/configs.md
	$(BIN)/python -m konvene.sim.reference docs/reference/simulator.md
	$(BIN)/python -m konvene.broker.metrics.reference docs/reference/metrics.md
	$(BIN)/python -m konvene.pipeline.reference docs/reference/tables.md

site: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx --builder html --fail-on-warning --quiet docs site

# In virtual environments of its own; ARGS=--untagged tries it on any commit.
release:
	$(PYTHON) .ci/release.py $(ARGS)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "konvene needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (make PYTHON=... chooses another)")'
	$(PYTHON) -m venv $(VENV)

# Without a wheel of google-re2 the broker runs without it and understands fewer regular expressions.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --only-binary google-re2 --editable '.[re2,metrics]' || $(PIP) --editable '.[metrics]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
