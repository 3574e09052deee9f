"""What CONTRIBUTING.md promises about the code as a whole."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from isentrope.errors import MissingExtraError

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "isentrope"
MODULES = sorted(SOURCE.rglob("*.py"))

# Package or module, from the ground up: what it may import of isentrope, beside itself.
MAY_IMPORT = {
    "errors": set(),
    "bounds": {"errors"},
    "toml_codec": {"errors"},
    "config": {"bounds", "errors", "toml_codec"},
    "objective": {"errors"},
    "token_stats": {"errors", "objective"},
    "runs": {"errors"},
    "law": {"errors", "runs"},
    "control": {"config", "errors"},
    "verifiers": {"errors"},
    "tasks": {"bounds", "config", "errors", "verifiers"},
    "policy": {"bounds", "config", "errors", "objective", "tasks", "token_stats"},
    "evaluation": {
        "bounds",
        "config",
        "errors",
        "objective",
        "policy",
        "runs",
        "tasks",
        "verifiers",
    },
    "training": {
        *("config", "control", "errors", "evaluation", "objective"),
        *("policy", "runs", "tasks", "token_stats"),
    },
    "integrations": {
        *("bounds", "config", "control", "errors", "law"),
        *("objective", "policy", "runs", "tasks", "token_stats", "training"),
    },
    "report": {"config", "errors", "law", "runs"},
    "commands": {
        *(
            "bounds",
            "config",
            "control",
            "errors",
            "evaluation",
            "integrations",
            "law",
            "objective",
        ),
        *(
            "policy",
            "report",
            "runs",
            "tasks",
            "token_stats",
            "toml_codec",
            "training",
            "verifiers",
        ),
    },
    "api": {
        *("commands", "config", "law", "report", "tasks", "training"),
    },
    "cli": {"commands", "errors"},
    "__main__": {"cli"},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_every_package_is_in_the_table() -> None:
    found = {path.stem for path in SOURCE.glob("*.py")} | {
        path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()
    }
    assert found - {"__init__"} == set(MAY_IMPORT)


def test_no_package_imports_one_above_it() -> None:
    order = list(MAY_IMPORT)
    for package, allowed in MAY_IMPORT.items():
        assert all(order.index(other) < order.index(package) for other in allowed), package


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_go_one_way(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package, "__version__"}
    paths = [SOURCE / f"{package}.py", *(SOURCE / package).rglob("*.py")]
    for path in filter(Path.is_file, paths):
        for module in imports(path):
            top, _, rest = module.partition(".")
            if top == "isentrope" and rest:
                assert rest.partition(".")[0] in allowed, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("package", ["law", "runs"])
def test_the_law_and_the_logs_need_numpy_only(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        heavy = {"torch", "transformers", "scipy", "pandas"} & set(imports(path))
        assert not heavy, f"{name_of(path)} imports {heavy}"


def test_what_a_module_exports_is_there_and_documented() -> None:
    for path in MODULES:
        if path.name == "triton_softmax.py":
            continue  # these need what may not be installed
        try:
            module = importlib.import_module(name_of(path))
        except MissingExtraError:
            continue
        for name in getattr(module, "__all__", []):
            try:
                value = getattr(module, name)
            except MissingExtraError:
                continue  # loaded at its first use, with a host that is not installed
            if callable(value) and getattr(value, "__module__", "").startswith("isentrope"):
                assert value.__doc__, f"{module.__name__}.{name} has no docstring"


def test_no_file_and_no_function_is_too_long() -> None:
    for path in MODULES:
        text = path.read_text()
        assert text.count("\n") <= 600, f"{path} is too long"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno
                assert lines <= 80, f"{path}:{node.lineno} {node.name} has {lines} lines"


def python_blocks(page: Path) -> Iterator[str]:
    for block in page.read_text().split("```python\n")[1:]:
        yield block.partition("```")[0]


def test_the_loss_of_the_readme_runs() -> None:
    (block,) = python_blocks(ROOT / "README.md")
    logprob = -torch.rand(4, 8)
    names: dict[str, object] = {
        "logprob": logprob.clone().requires_grad_(),
        "old_logprob": logprob,
        "advantage": torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]).expand(4, 8),
        "mask": torch.ones(4, 8, dtype=torch.bool),
    }
    exec(block, names)
    loss = names["loss"]
    assert isinstance(loss, torch.Tensor)
    assert loss.item() == pytest.approx(0.0)  # on policy, -A averages to 0 here


def test_the_loss_of_the_guide_is_that_of_the_readme() -> None:
    (block,) = python_blocks(ROOT / "docs" / "objective.md")
    names: dict[str, object] = {}
    exec(block, names)
    assert callable(names["loss_of"])


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for part in page.read_text().split("](")[1:]:
            target = part.partition(")")[0].partition("#")[0]
            if target and "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
