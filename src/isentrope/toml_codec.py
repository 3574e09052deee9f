"""Recipes: TOML files to and from dataclasses, every key and type checked. Loads no torch."""

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from isentrope.errors import ConfigError

__all__ = [
    "Scalar",
    "build",
    "differences",
    "dump_toml",
    "merge",
    "nested",
    "read_recipe",
    "recipe_names",
    "sweep_of",
]

T = TypeVar("T")
Scalar = bool | int | float | str


def read_recipe(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tables of a recipe, merged over the recipe that it extends."""
    path = shipped(path)
    if path in seen:
        raise ConfigError(f"{path}: `extends` leads back to the file itself")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no recipe {path}; give the path of a TOML file, or a name: "
            f"{', '.join(recipe_names())}"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends is {base!r}; give the path of a recipe")
    return merge(read_recipe(path.parent / base, (*seen, path)), table)


def recipe_folder() -> Path:
    """Where the recipes are: in the installed package, or beside its sources."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "recipes"


def recipe_names() -> list[str]:
    """The names of the recipes that come with the package."""
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))


def shipped(path: Path) -> Path:
    """The recipe of that name that comes with the package, where the path is not a file's."""
    known = not path.exists() and str(path) in recipe_names()
    return recipe_folder() / f"{path}.toml" if known else path


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, table by table."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def sweep_of(table: object, where: str, prefix: str = "") -> dict[str, list[object]]:
    """The values of each setting that a [sweep] names, by its dotted key."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: sweep is {table!r}; it is a section: write [sweep]")
    found: dict[str, list[object]] = {}
    for name, values in table.items():
        key = f"{prefix}{name}"
        if isinstance(values, Mapping):
            found |= sweep_of(values, where, f"{key}.")
        elif not isinstance(values, list) or not values:
            raise ConfigError(f"{where}: sweep {key} is {values!r}; give a list of values")
        elif len({repr(value) for value in values}) < len(values):
            raise ConfigError(f"{where}: sweep {key} is {values!r}; give each value once")
        elif key in ("name", "seed"):
            raise ConfigError(f"{where}: a sweep over {key}; give seeds with --seeds")
        else:
            found[key] = values
    return found


def nested(key: str, value: object) -> dict[str, object]:
    """The table in which a dotted key has that value."""
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def build(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass from a table, every key and type checked."""
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(hints)}"
            raise ConfigError(f"{where}: unknown key {key!r}; {advice}")
    values = {key: convert(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`, or a ConfigError. An integer will do for a float."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {value!r}; it is a section: write [{where.split()[-1]}]")
        return build(hint, value, where)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        return convert(members[0], value, where) if len(members) == 1 else value
    if origin is Literal:
        if value not in get_args(hint):
            choices = ", ".join(map(str, get_args(hint)))
            raise ConfigError(f"{where} is {value!r}; choose one of {choices}")
        return value
    if origin is tuple:
        items = value if isinstance(value, list) else [value]
        return tuple(convert(get_args(hint)[0], item, where) for item in items)
    if origin is dict:
        hint = dict
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigError(
            f"{where} is {value!r}; it must be of type {getattr(hint, '__name__', hint)}"
        )
    return value


def dump_toml(config: Any) -> str:
    """The configuration as TOML; loading it gives an equal one. None is left out."""
    scalars, sections = [], []
    for key, value in fields_of(config).items():
        if isinstance(value, dict) or dataclasses.is_dataclass(value):
            sections.append((key, value))
        elif value is not None and value != ():
            scalars.append(f"{key} = {toml_value(value)}")
    text = "\n".join(scalars) + "\n"
    for key, section in sections:
        body = dump_toml(section)
        if body.strip():
            lines = [
                f"[{key}.{line[1:]}" if line.startswith("[") else line for line in body.splitlines()
            ]
            text += f"\n[{key}]\n" + "\n".join(lines) + "\n"
    return text


def fields_of(config: Any) -> dict[str, Any]:
    """The fields of a dataclass, or the items of a dict."""
    if isinstance(config, dict):
        return config
    return {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}


def toml_value(value: Scalar | tuple[Scalar, ...]) -> str:
    """A scalar, or several, in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """One line for each setting that differs: `section.key: old -> new`."""
    lines = []
    before, after = fields_of(old), fields_of(new)
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        if dataclasses.is_dataclass(a) or isinstance(a, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {a!r} -> {b!r}")
    return lines
