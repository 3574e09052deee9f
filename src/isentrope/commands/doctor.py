"""`isentrope doctor`: what is installed here, and what is missing for what."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from isentrope import __version__

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

__all__ = ["Options", "Row", "requirement_rows", "run"]

State = Literal["ok", "warning", "missing"]

GIB = 2**30
LEAST_DISK_GIB = 5.0  # a few checkpoints of a small model
LEAST_MEMORY_GIB = 2.0  # torch, the built-in model and its rollouts
STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Check versions, device, optional packages, disk, memory and the built-in model."""


@dataclass(frozen=True, slots=True)
class Row:
    """One finding; `advice` says what to do where something is to be done."""

    what: str
    state: State
    found: str
    advice: str = ""


def run(options: Options) -> int:
    """Prints the findings and what to run next; a missing extra is no failure."""
    from rich.console import Console
    from rich.table import Table

    del options
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("check", "state", "found", "what to do"):
        table.add_column(name, overflow="fold")
    rows = list(findings())
    for row in rows:
        state = f"[{STYLES[row.state]}]{row.state}[/]"
        table.add_row(row.what, state, row.found, row.advice.replace("[", "\\["))
    console.print(table)
    console.print(f"\nnext: {next_command(rows)}", style="bold", highlight=False)
    return 0


def findings() -> Iterator[Row]:
    """All rows, in the order in which they are printed."""
    yield python_row()
    yield from requirement_rows(*declared(), installed_version)
    yield device_row()
    yield thread_row()
    yield memory_row(available_memory())
    yield disk_row(shutil.disk_usage(Path.cwd()).free)
    yield model_row()


def python_row() -> Row:
    """The interpreter."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Row("python", "ok", found)


def declared() -> tuple[list[str], list[str]]:
    """The requirements and the names of the extras that the installed package declares."""
    try:
        package = importlib.metadata.metadata("isentrope")
    except importlib.metadata.PackageNotFoundError:
        return [], []
    return package.get_all("Requires-Dist") or [], package.get_all("Provides-Extra") or []


def requirement_rows(
    requirements: Sequence[str], extras: Sequence[str], version: Callable[[str], str | None]
) -> Iterator[Row]:
    """A row for isentrope, for each package it needs, and for each extra.

    `version` gives the installed version of a package, or None.
    """
    if not requirements:
        advice = "run: pip install isentrope"
        yield Row("isentrope", "warning", f"{__version__}, not installed as a package", advice)
        return
    yield Row("isentrope", "ok", __version__)
    for name, specifier in needed(requirements, ""):
        found = version(name)
        met = is_met(specifier, found)
        advice = "" if met else f"run: pip install '{name}{specifier}'"
        yield Row(name, state(met, found), found or "not installed", advice)
    for extra in extras:
        packages = [
            (name, version(name), specifier) for name, specifier in needed(requirements, extra)
        ]
        met = all(is_met(specifier, found) for _, found, specifier in packages)
        installed = all(found is not None for _, found, _ in packages)
        text = ", ".join(f"{name} {found or 'not installed'}" for name, found, _ in packages)
        advice = "" if met else f"run: pip install 'isentrope[{extra}]'"
        yield Row(f"extra {extra}", state(met, text if installed else None), text, advice)


def needed(requirements: Sequence[str], extra: str) -> list[tuple[str, "SpecifierSet"]]:
    """(package, versions) that `extra` adds to the core; "" is the core itself."""
    from packaging.requirements import Requirement

    found: list[tuple[str, SpecifierSet]] = []
    for one in map(Requirement, requirements):
        in_core = one.marker is None or one.marker.evaluate({"extra": ""})
        in_extra = one.marker is not None and one.marker.evaluate({"extra": extra})
        if in_core != bool(extra) and (in_core or in_extra):
            found.append((one.name, one.specifier))
    return found


def is_met(specifier: "SpecifierSet", found: str | None) -> bool:
    """Whether the installed version will do."""
    return found is not None and specifier.contains(found, prereleases=True)


def state(met: bool, found: str | None) -> State:
    """ok; a warning for an unsuitable version; missing."""
    if met:
        return "ok"
    return "missing" if found is None else "warning"


def installed_version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def device_row() -> Row:
    """The device that training would use."""
    try:
        import torch
    except ImportError as error:
        return Row("device", "missing", f"torch does not load: {error}", "run: pip install torch")
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        return Row("device", "ok", f"cuda, {name}, {free / GIB:.1f} of {total / GIB:.1f} GiB free")
    return Row("device", "ok", "cpu; no CUDA device is visible")


def thread_row() -> Row:
    """CPU cores of this process."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    return Row("threads", "ok", f"{cores} cores" + (f", OMP_NUM_THREADS {limit}" if limit else ""))


def memory_row(available: int | None) -> Row:
    """Memory that is free to use, in bytes; None where the system does not say."""
    if available is None:
        return Row("memory", "ok", "unknown on this system")
    found = f"{available / GIB:.1f} GiB available"
    if available < LEAST_MEMORY_GIB * GIB:
        return Row(
            "memory", "warning", found, "smaller rollout.rows and optimizer.micro_batch_size"
        )
    return Row("memory", "ok", found)


def available_memory() -> int | None:
    """MemAvailable of Linux in bytes, None elsewhere."""
    path = Path("/proc/meminfo")
    if not path.is_file():
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", path.read_text())
    return int(found[1]) * 1024 if found else None


def disk_row(free: int) -> Row:
    """Free space, in bytes, where runs would be written."""
    found = f"{free / GIB:.1f} GiB free in {Path.cwd()}"
    if free < LEAST_DISK_GIB * GIB:
        return Row(
            "disk", "warning", found, "free some, or write runs elsewhere; see checkpoint.keep"
        )
    return Row("disk", "ok", found)


def model_row() -> Row:
    """Whether the built-in model loads."""
    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        from isentrope.policy.builtin import builtin_path

        disable_progress_bar()
        model = AutoModelForCausalLM.from_pretrained(builtin_path("countdown"))
    except (ImportError, OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        return Row("builtin:countdown", "missing", first, "reinstall isentrope")
    size = sum(parameter.numel() for parameter in model.parameters())
    return Row("builtin:countdown", "ok", f"loads, {size / 1e6:.2f} M parameters")


def next_command(rows: Sequence[Row]) -> str:
    """The command to run next."""
    broken = [row for row in rows if row.state == "missing" and not row.what.startswith("extra ")]
    if broken and broken[0].advice:
        return broken[0].advice.removeprefix("run: ")
    return "isentrope train countdown"
