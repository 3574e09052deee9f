# make demo   installs into .venv and runs the demonstration
# make test   installs into .venv with the development tools; lints, type-checks, tests
# make test-engines   installs TRL and verl into environments of their own; tests the integrations
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := demo

.PHONY: demo test lint format clean

# Three runs for two cores: three processes at once keep both busy to the end.
demo: .venv/.installed
	rm -rf runs/demo
	$(BIN)/isentrope compare recipes/countdown.toml recipes/countdown-clip-cov.toml \
		recipes/countdown-kl-cov.toml --out runs/demo --jobs 3
	$(BIN)/isentrope fit runs/demo/grpo-seed0 --until 0.25

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
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[report,math,lora]' --group dev
	touch $@

clean:
	rm -rf .venv .venv-trl .venv-verl .venv-vllm

include engines.mk
