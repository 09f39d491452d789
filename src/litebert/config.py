"""Typed configs: frozen dataclasses <-> YAML and JSON, strict about keys, lenient about how numbers are spelled.

    @dataclass(frozen=True)
    class OptimConfig:
        lr: float = 1e-3

    build(OptimConfig, {"lr": "1e-4"})   -> OptimConfig(lr=0.0001)      (PyYAML reads 1e-4 as a string)
    build(OptimConfig, {"rl": 1})        -> ConfigError: rl: unknown key; did you mean 'lr'?
    override({}, ["optim.lr=3e-4"])      -> {"optim": {"lr": "3e-4"}}

Precedence, where a command reads a config: defaults < preset < YAML file < `--set key=value`.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from litebert.errors import ConfigError, check_choice, did_you_mean, quote_value
from litebert.parse import MAX_DEPTH, MAX_YAML_BYTES, parse_yaml, read_text

T = TypeVar("T")
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def build(cls: type[T], data: Mapping[str, Any], where: str = "") -> T:
    """Make a dataclass (nested ones too) from plain data; every error names its key."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{_prefix(where)}expected a mapping of {cls.__name__} fields, got {quote_value(data)}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    renamed: Mapping[str, str] = getattr(cls, "RENAMED", {})  # keys that had other names in earlier versions
    for key, value in data.items():
        key = renamed.get(key, key)
        if key not in fields:
            raise ConfigError(f"{_join(where, str(key)[:80])}: unknown key{_hint(cls, str(key)[:80], value)}")
        values[key] = coerce(value, hints[key], _join(where, key))
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise ConfigError(f"{_join(where, name)}: missing, and it has no default")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{_prefix(where)}{error}") from None


def to_dict(config: Any) -> dict[str, Any]:
    """The plain data of a config, ready for YAML or JSON (tuples become lists, paths strings)."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def given(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Drop unset values, paths as text: {"task": "sst-2", "data": {"train": None}} -> {"task": "sst-2"}."""
    said: dict[str, Any] = {}
    for name, value in choices.items():
        plain = given(value) if isinstance(value, Mapping) else _plain(value)
        if plain is not None and plain != {}:
            said[name] = plain
    return said


def check_numbers(config: object, rule: str, *names: str) -> None:
    """Refuse fields of a config that break a rule, which is also the message; null is fine.

    check_numbers(self, "> 0 and <= 1", "power")   -> ConfigError("power: must be > 0 and <= 1, got 2")
    check_numbers(self, "between 8 and 4096", "max_length")
    """
    signs = rule if not rule.startswith("between ") else f">= {rule[8:].replace(' and ', ' and <= ')}"
    parts = (part.split() for part in signs.replace(",", "").split(" and "))
    bounds = [(_SIGNS[sign], float(bound)) for sign, bound in parts]
    for name in names:
        value = getattr(config, name)
        if value is not None and not all(holds(value, bound) for holds, bound in bounds):
            raise ConfigError(f"{name}: must be {rule}, got {value:,}")


def read_yaml(path: Path | str) -> dict[str, Any]:
    """The mapping in a YAML file; a syntax error names the file and line."""
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"{path}: no such config file")
    data = parse_yaml(read_text(path, ConfigError, MAX_YAML_BYTES), str(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected key: value lines, got {quote_value(data)}")
    return data


def write_yaml(config: Any) -> str:
    """A config as YAML text; read_yaml + build restore the same config."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


def override(data: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply settings such as "a.b=value" (on the command line: --set) to plain data; values are parsed as YAML."""
    result = merge({}, data)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip() or key.count(".") > MAX_DEPTH:
            raise ConfigError(f"setting {setting:.80}: expected key=value, for example optim.lr=1e-3")
        nested: Any = parse_yaml(text, f"setting {setting:.80}")
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        result = merge(result, nested)
    return result


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested mappings; `top` wins."""
    result = {key: merge({}, value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for key, value in top.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merge(result[key], value)
        else:
            result[key] = merge({}, value) if isinstance(value, Mapping) else value
    return result


def coerce(value: Any, hint: Any, where: str) -> Any:
    """A value converted to its annotated type, or a ConfigError that names the key."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(value, args, where)
    if origin is Literal:
        if value in args:
            return value
        if isinstance(value, bool):  # YAML 1.1 reads a bare on, off, yes or no as a boolean
            for word in ("on", "yes") if value else ("off", "no"):
                if word in args:
                    return word
        check_choice(where, value, args)
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, typing.cast(type, hint)) else build(typing.cast(type, hint), value, where)
    if origin in (tuple, list, Sequence):
        return _coerce_sequence(value, origin, args, where)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: expected a mapping, got {quote_value(value)}")
        key_hint, value_hint = args
        return {coerce(k, key_hint, where): coerce(v, value_hint, f"{where}.{k}") for k, v in value.items()}
    return _coerce_scalar(value, hint, where)


def _coerce_union(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    reasons = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return coerce(value, choice, where)
        except ConfigError as error:
            reasons.append(str(error))
    raise ConfigError(" / ".join(reasons))


def _coerce_sequence(value: Any, origin: Any, args: tuple[Any, ...], where: str) -> Any:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        hint = f"; write [{value:.80}]" if isinstance(value, str) else ""
        raise ConfigError(f"{where}: expected a list, got {quote_value(value)}{hint}")
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ConfigError(f"{where}: expected {len(args)} values, got {len(value)}")
        hints: Sequence[Any] = args
    else:
        hints = [args[0] if args else Any] * len(value)
    items = [coerce(item, hint, f"{where}[{i}]") for i, (item, hint) in enumerate(zip(value, hints, strict=True))]
    return tuple(items) if origin is tuple else items


def _coerce_scalar(value: Any, hint: Any, where: str) -> Any:
    try:
        if hint is bool and isinstance(value, bool):
            return value
        if hint is int and not isinstance(value, bool):
            number = float(value)
            if number.is_integer():
                exact = isinstance(value, (int, str)) and str(value).lstrip("+-").isdigit()
                whole = int(value) if exact else int(number)
                if abs(whole) < 2**63:
                    return whole
        if hint is float and not isinstance(value, bool):
            number = float(value)
            if abs(number) <= 1e30 or math.isinf(number):  # not nan, and nothing that a float32 cannot hold
                return number
        if hint is str and isinstance(value, (str, Path)):
            return str(value)
        if hint is Path and isinstance(value, (str, Path)):
            return Path(value)
    except (TypeError, ValueError, OverflowError):
        pass
    if hint not in (bool, int, float, str, Path) and isinstance(hint, type) and isinstance(value, hint):
        return value
    name = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}.get(
        hint, hint
    )
    raise ConfigError(f"{where}: expected {name}, got {quote_value(value)}")


def _hint(cls: type, key: str, value: Any) -> str:
    """A hint for an unknown key: the same name elsewhere (schedule.steps -> steps, lr -> optim.lr) or a similar one."""
    paths = _paths(cls)
    ends = [str(name) for name in value] if isinstance(value, Mapping) else [key]
    same = [path for path in paths if path.split(".")[-1] in ends]
    if same:
        return "; did you mean " + " or ".join(map(repr, same[:3])) + "?"
    return did_you_mean(key, [path for path in paths if "." not in path])


def _paths(cls: type, prefix: str = "") -> list[str]:
    """All keys of a config, nested ones with dots: ["steps", "optim", "optim.lr", ...]."""
    paths = []
    hints = typing.get_type_hints(cls)
    for name, hint in ((field.name, hints[field.name]) for field in dataclasses.fields(cls)):
        paths.append(prefix + name)
        if dataclasses.is_dataclass(hint):
            paths += _paths(typing.cast(type, hint), f"{prefix}{name}.")
    return paths


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _join(where: str, key: str) -> str:
    # "file.yaml: optim" + "lr" -> "file.yaml: optim.lr"; "file.yaml: " + "lr" -> "file.yaml: lr"
    if not where or where.endswith(": "):
        return where + key
    return f"{where}.{key}"


def _prefix(where: str) -> str:
    if not where:
        return ""
    return where if where.endswith(": ") else f"{where}: "
