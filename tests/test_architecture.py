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

# package: what it may import of isentrope, beside itself
MAY_IMPORT = {
    "objective": {"errors", "kernels"},
    "kernels": {"errors"},
    "law": {"errors", "runs"},
    "runs": {"errors"},
    "report": {"errors", "law", "runs", "config"},
    "verifiers": {"errors"},
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


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_go_one_way(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package, "__version__"}
    for path in (SOURCE / package).rglob("*.py"):
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
        if "kernels" in path.parts:
            continue  # these need what may not be installed
        try:
            module = importlib.import_module(name_of(path))
        except MissingExtraError:
            continue
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
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
