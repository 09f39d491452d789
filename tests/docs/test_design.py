"""The map in docs/design.md: every part is on it, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import litebert

ROOT = Path(litebert.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")


def read_map() -> dict[str, list[str]]:
    """Parts with the files that stand under them."""
    block = TEXT.split("## The house")[1].split("```text\n")[1].split("```")[0]
    found: dict[str, list[str]] = {}
    for line in block.splitlines():
        if not line.startswith(" "):
            part = line.split()[0]
            found[part] = []
        elif "->" in line or re.fullmatch(r"[a-z_, ]+", line):
            found[part] += re.findall(r"[a-z_]+", line)
    return found


def test_every_part_is_on_the_map():
    assert read_map().keys() == {path.parent.name for path in ROOT.glob("*/__init__.py")}


def test_what_the_map_names_is_there():
    for part, names in read_map().items():
        for name in names:
            assert (ROOT / part / f"{name}.py").is_file(), f"{part}: {name}"
    assert sum(map(len, read_map().values())) > 60
    for name in ("errors", "files", "config", "machine", "extras", "remote"):
        assert (ROOT / f"{name}.py").is_file()
        assert f"`{name}`" in TEXT


def test_paths_in_the_text_are_there():
    for path in re.findall(r"`((?:tasks|model|predict|cli|pretraining|tests)/\w+\.py)`", TEXT):
        base = ROOT.parents[1] if path.startswith("tests/") else ROOT
        assert "mine" in path or (base / path).is_file(), path
