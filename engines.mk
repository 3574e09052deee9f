# make test-engines   TRL and verl in an environment of their own; trains with both on the CPU
ENGINES := .venv-engines/bin
# What TRL and verl import, beside themselves; constraints-engines.txt has the versions.
ENGINE_PACKAGES := accelerate datasets peft pyarrow tensordict ray hydra-core omegaconf \
	TransferQueue codetiming fastapi uvicorn opentelemetry-api msgspec orjson pillow pyzmq

.PHONY: test-engines

test-engines: .venv-engines/.installed
	$(ENGINES)/python -m pytest tests/integrations -m extra -o timeout=1200

.venv-engines/.installed: pyproject.toml constraints-engines.txt
	$(PYTHON) -m venv .venv-engines
	$(ENGINES)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(ENGINES)/python -m pip install --quiet -c constraints-engines.txt -e . trl $(ENGINE_PACKAGES) \
		pytest pytest-timeout beartype
	$(ENGINES)/python -m pip install --quiet -c constraints-engines.txt --no-deps verl
	touch $@
