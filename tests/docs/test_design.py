"""The map in docs/design.md: every part is on it, and every name on it exists."""

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
    for path in re.findall(r"`((?:tasks|model|predict|cli|pretraining|train|tests|tools)/[\w/]+\.py)`", TEXT):
        base = ROOT.parents[1] if path.startswith(("tests/", "tools/")) else ROOT
        assert "mine" in path or (base / path).is_file(), path


def test_files_stay_small_enough_to_be_read():
    assert "no file has more than 600 lines" in TEXT
    long = {path.name: count for path in ROOT.rglob("*.py") if (count := len(path.read_text().splitlines())) > 600}
    assert not long


def test_every_row_to_add_names_its_test():
    table = TEXT.split("| to add |")[1].split("\n\n")[0]
    rows = [line for line in table.splitlines()[2:] if line]
    assert len(rows) == 6
    for row in rows:
        (path,) = re.findall(r"`(tests/[\w/]+\.py)`", row.split("|")[-2])
        assert "outside" in (ROOT.parents[1] / path).read_text(encoding="utf-8"), path
