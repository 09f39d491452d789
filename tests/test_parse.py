"""The guarded reader: any file gives plain data or one error of the caller's type."""

from __future__ import annotations

import json

import pytest

from litebert.config import override, read_yaml
from litebert.errors import CheckpointError, ConfigError, DataError, quote_value
from litebert.parse import MAX_DEPTH, parse_json, parse_yaml, read_json, read_object


def nested(depth):
    return "[" * depth + "]" * depth


def test_what_is_fine_comes_back(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('\ufeff{"a": [1, 2.5, null], "é": "ü"}', encoding="utf-8")
    assert read_object(file) == {"a": [1, 2.5, None], "é": "ü"}
    assert parse_json(nested(MAX_DEPTH), "a") == json.loads(nested(MAX_DEPTH))
    wide = "[" + ", ".join(["[{}]"] * 1000) + "]"
    assert parse_json(wide, "a") == json.loads(wide)
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, d: 2001-01-31}", "a")["c"]["b"] == 1
    assert parse_yaml("", "a") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"a\.json:1: not valid JSON: Expecting property name enclosed in double quotes \(column 2\)"),
        (b'{\n"a": 1,\n}', r"a\.json:3: not valid JSON"),
        (b'{"a": \xff}', r"a\.json:1: not valid UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", r"a\.json: not usable JSON: Exceeds the limit"),
        (b"[" * 100_000, r"a\.json: nested more than 64 levels deep"),
        (nested(MAX_DEPTH + 1).encode(), r"a\.json: nested more than 64 levels deep"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, r"a\.json: nested more than 64 levels deep"),
        (b"[1, 2]", r"a\.json: expected a JSON object \{\.\.\.\}, got \[1, 2\]"),
        (b"5", "expected a JSON object"),
        (b"", r"a\.json:1: not valid JSON"),
    ],
)
def test_bad_json_is_one_message(tmp_path, content, message):
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_object(file, CheckpointError)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.json: no such file"):
        read_json(tmp_path / "none.json", CheckpointError)
    with pytest.raises(CheckpointError, match="cannot read: Is a directory"):
        read_json(tmp_path, CheckpointError)
    (tmp_path / "large.json").write_text(json.dumps("x" * 5000), encoding="utf-8")
    with pytest.raises(DataError, match=r"large\.json: larger than 4 KiB"):
        read_json(tmp_path / "large.json", max_bytes=4096)


def test_a_line_of_a_file_is_named():
    with pytest.raises(DataError, match=r"^a\.jsonl:7: not valid JSON: .* \(column 6\)"):
        parse_json('{"a" 1}', "a.jsonl", line=7)
    with pytest.raises(DataError, match=r"^a\.jsonl:7: nested"):
        parse_json(nested(5000), "a.jsonl", line=7)


LAUGHS = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 60))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 1\nseed: 2001-13-45", r"a\.yaml:2: not valid YAML: '2001-13-45' is not a valid timestamp; quote it"),
        ("seed: !!int abc", r"a\.yaml: not valid YAML: 'abc' is not a valid int"),
        ("seed: !!bool maybe", "'maybe' is not a valid bool"),
        ("seed: !!timestamp soon", "'soon' is not a valid timestamp"),
        ("seed: " + "9" * 5000, r"'9{10,}\.\.\. is not a valid int"),
        ("seed: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("[" * 3000, "nested more than 64 levels deep"),
        ("".join(f"{' ' * i}a:\n" for i in range(100)), r"a\.yaml:\d+: not valid YAML: nested more than 64 levels"),
        ("a: &a [*a]", "an alias refers to itself"),
        ("a: &a {b: *a}", "an alias refers to itself"),
        ("a: &a {<<: *a}", "an alias refers to itself"),
        ("&a !!pairs [x: *a]", "an alias refers to itself"),
        (LAUGHS, "more than 100,000 values once its aliases are expanded"),
        (MERGES, "more than 100,000 values once its aliases are expanded"),
        ("a: \x00", "special characters are not allowed"),
    ],
)
def test_bad_yaml_is_one_message(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_yaml(text, "a.yaml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_yaml_file_of_absurd_size(tmp_path):
    (tmp_path / "a.yaml").write_text("- a\n" * 100_000, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.yaml: larger than 256 KiB"):
        read_yaml(tmp_path / "a.yaml")


def test_settings_are_guarded_too():
    with pytest.raises(ConfigError, match=r"setting seed=2001-13-45: not valid YAML: '2001-13-45'"):
        override({}, ["seed=2001-13-45"])
    with pytest.raises(ConfigError, match="expected key=value"):
        override({}, ["a" + ".a" * 5000 + "=1"])


def test_values_in_messages_are_short():
    assert quote_value("abc") == "'abc'"
    assert quote_value(16**6000) == "a very large int"  # too long for Python to print
    assert len(quote_value("x" * 10_000)) == 80
