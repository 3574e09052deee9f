from dataclasses import replace

import pytest

from isentrope.config import ModelConfig
from isentrope.errors import ConfigError
from isentrope.policy.model import LanguageModel, load_model

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def test_a_base_model_sees_the_problem_alone(model: LanguageModel) -> None:
    assert model.decode(model.encode("3 7 5=16:")) == "3 7 5=16:"


def test_a_chat_model_sees_its_template(model: LanguageModel) -> None:
    # Only what this tokenizer knows survives; the numbers of the template's parts do.
    tokenizer = model.tokenizer
    before = tokenizer.chat_template
    try:
        tokenizer.chat_template = TEMPLATE.replace("assistant", "9").replace("{{ m.role }}", "8")
        chat = replace(model, chat=True)
        assert chat.encode("3 7") == model.encode("8: 3 7\n9:")
        assert replace(chat, system="5").encode("3 7") == model.encode("8: 5\n8: 3 7\n9:")
    finally:
        tokenizer.chat_template = before


def test_what_a_prompt_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"set model\.prompt to 'chat'"):
        ModelConfig(system="Think.")
    with pytest.raises(ConfigError, match="has no chat template"):
        load_model(ModelConfig(prompt="chat"))
