"""The typed config: coercion, strict keys, overrides, and errors that name the key."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from litebert.config import build, check_numbers, merge, override, read_yaml, to_dict, write_yaml
from litebert.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    lr: float = 1e-3
    name: Literal["lamb", "adamw"] = "lamb"
    betas: tuple[float, float] = (0.9, 0.999)
    compile: Literal["auto", "on", "off"] = "auto"
    keep: Literal["yes", "no"] | None = None

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ConfigError(f"lr: must be above 0, not {self.lr}")


@dataclass(frozen=True)
class Outer:
    steps: int
    optim: Inner = field(default_factory=Inner)
    out: Path | None = None
    files: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    fast: bool = False


def test_yaml_numbers_are_read_by_type():
    assert yaml.safe_load("1e-4") == "1e-4"  # why coercion exists
    config = build(Outer, yaml.safe_load("steps: 1e3\noptim: {lr: 1e-4, betas: [0.9, 1]}\nweights: {wiki: 2}"))
    assert config.steps == 1000
    assert isinstance(config.steps, int)
    assert config.optim == Inner(lr=1e-4, betas=(0.9, 1.0))
    assert config.weights == {"wiki": 2.0}


@pytest.mark.parametrize("word", ["on", "off"])
def test_yaml_booleans_are_read_as_the_words_that_were_typed(word):
    assert isinstance(yaml.safe_load(word), bool)  # why
    assert build(Inner, yaml.safe_load(f"compile: {word}")).compile == word
    assert build(Inner, override({}, [f"compile={word}"])).compile == word
    assert build(Inner, yaml.safe_load("keep: no")).keep == "no"
    with pytest.raises(ConfigError, match="name: False is not one of: lamb, adamw"):
        build(Inner, yaml.safe_load("name: no"))


def test_round_trip_through_yaml(tmp_path):
    config = Outer(steps=3, out=Path("x"), files=("a", "b"), optim=Inner(lr=1e-7), weights={"w": 0.5}, fast=True)
    (tmp_path / "c.yaml").write_text(write_yaml(config))
    assert build(Outer, read_yaml(tmp_path / "c.yaml")) == config
    assert to_dict(config)["files"] == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "steps: missing, and it has no default"),
        ({"steps": 1, "optm": {}}, r"optm: unknown key; did you mean 'optim'"),
        ({"steps": 1, "optim": {"learning": 1}}, r"optim.learning: unknown key"),
        ({"steps": 1, "optim": {"lr": "fast"}}, r"optim.lr: expected a number, got 'fast'"),
        ({"steps": 1, "optim": {"lr": -1}}, r"optim: lr: must be above 0, not -1"),
        (
            {"steps": 1, "optim": {"name": "lamp"}},
            r"optim.name: 'lamp' is not one of: lamb, adamw; did you mean 'lamb'",
        ),
        ({"steps": 1, "optim": {"betas": [0.9]}}, r"optim.betas: expected 2 values, got 1"),
        ({"steps": 1.5}, "steps: expected a whole number, got 1.5"),
        ({"steps": True}, "steps: expected a whole number"),
        ({"steps": 1, "fast": "maybe"}, "fast: expected true or false"),
        ({"steps": 1, "files": "one.txt"}, r"files: expected a list, got 'one\.txt'; write \[one\.txt\]"),
        ({"steps": 1, "optim": 3}, "optim: expected a mapping"),
        ({"steps": 1, "weights": [1]}, "weights: expected a mapping"),
        ({"steps": 1, "optim": {"name": ["lamb"]}}, r"optim.name: \['lamb'\] is not one of"),
        ({"steps": 1, "optim": {3: 4}}, "optim.3: unknown key"),
        ({"steps": [1]}, "steps: expected a whole number"),
    ],
)
def test_mistakes_name_their_key(data, message):
    with pytest.raises(ConfigError, match=message):
        build(Outer, data)


def test_the_file_stands_before_the_key():
    with pytest.raises(ConfigError, match=r"^run.yaml: optim.lr: expected a number"):
        build(Outer, {"steps": 1, "optim": {"lr": "x"}}, "run.yaml: ")


def test_overrides():
    data = override({"optim": {"lr": 1, "name": "lamb"}}, ["optim.lr=3e-4", "steps=5", "files=[a, b]", "out=null"])
    config = build(Outer, data)
    assert (config.optim.lr, config.optim.name, config.steps, config.files) == (3e-4, "lamb", 5, ("a", "b"))
    for wrong in ("optim.lr", "=3"):
        with pytest.raises(ConfigError, match="expected key=value"):
            override({}, [wrong])
    with pytest.raises(ConfigError, match=r"setting a=\{: not valid YAML"):
        override({}, ["a={"])


def test_merge_leaves_its_arguments_alone():
    base = {"a": {"b": 1}, "c": 2}
    assert merge(base, {"a": {"d": 3}}) == {"a": {"b": 1, "d": 3}, "c": 2}
    assert base == {"a": {"b": 1}, "c": 2}


def test_unreadable_yaml_names_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"none.yaml: no such config file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1,\nb: 2")
    with pytest.raises(ConfigError, match=r"bad.yaml:2: not valid YAML: expected"):
        read_yaml(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="expected key: value"):
        read_yaml(tmp_path / "list.yaml")
    (tmp_path / "empty.yaml").write_text("")
    assert read_yaml(tmp_path / "empty.yaml") == {}


@pytest.mark.parametrize("value", [float("nan"), "nan", 1e300, 2**63, 16**5000, "9" * 400], ids=range(6))
def test_numbers_that_nothing_can_hold_are_refused(value):
    with pytest.raises(ConfigError, match=r"^steps: expected a whole number, got .{1,90}$"):
        build(Outer, {"steps": value})
    if value not in (2**63, "9" * 400):  # as floats they are fine and infinite
        with pytest.raises(ConfigError, match=r"^optim.lr: expected a number, got .{1,90}$"):
            build(Outer, {"steps": 1, "optim": {"lr": value}})


@dataclass(frozen=True)
class Ranges:
    share: float = 0.5
    count: int | None = None

    def __post_init__(self):
        check_numbers(self, "> 0 and <= 1", "share")
        check_numbers(self, "between 1 and 1,000", "count")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 0}, "share: must be > 0 and <= 1, got 0"),
        ({"share": 1.5}, "share: must be > 0 and <= 1, got 1.5"),
        ({"share": math.nan}, "share: must be > 0 and <= 1, got nan"),
        ({"count": 0}, "count: must be between 1 and 1,000, got 0"),
        ({"count": 1001}, "count: must be between 1 and 1,000, got 1,001"),
    ],
)
def test_a_rule_is_its_own_message(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Ranges(**values)


def test_numbers_within_their_rules_and_null_are_taken():
    assert [Ranges(1).share, Ranges(count=1).count, Ranges(count=1000).count, Ranges().count] == [1, 1, 1000, None]
