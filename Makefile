# make demo   installs into .venv and runs the demonstration
# make test   installs into .venv with the development tools; lints, type-checks, tests
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format clean

demo: .venv/.installed
	$(BIN)/isentrope --help

test: lint
	$(BIN)/python -m pytest

lint: .venv/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: .venv/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[report]'
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev
	touch $@

clean:
	rm -rf .venv
