"""The editions of the README in other languages say what README.md says: its commands, outputs, links and figures.

Their sentences are their own. Numbers may be added to the text (what only readers of Korean need), none may be missing.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import pytest
from doc_pages import ROOT, TRANSLATIONS, Block, blocks, links, page_name, prose

ENGLISH = ROOT / "README.md"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def shown(block: Block) -> list[str]:
    """What a block asks a reader to type and shows in return, line by line, without comments."""
    if block.language == "python":
        return ast.unparse(ast.parse(block.text)).splitlines()
    if block.language == "console":  # the output too: it is the same model that answers
        return block.text.splitlines()
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.join(words) for line in lines if (words := shlex.split(line, comments=True))]


def all_shown(page: Path) -> list[str]:
    """The lines of all blocks, each block after a line with its language and whether the tests run it."""
    found = []
    for block in blocks(page):
        mark = "not run" if block.not_run else "run with" if block.run_with else "run"
        found += [f"a block of {block.language or 'text'}, {mark}", *shown(block)]
    return found


def sections(page: Path) -> list[tuple[str, str]]:
    """Every heading with the text below it; what stands before the first is left out."""
    parts = re.split(r"^(#+ .+)$", prose(page), flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def measured(page: Path) -> list[str]:
    """The rows of the table in the section that README.md calls "Measured"."""
    place = [heading for heading, _ in sections(ENGLISH)].index("## Measured")
    return [line for line in sections(page)[place][1].splitlines() if line.startswith("|")]


def numbers(text: str) -> Counter[str]:
    return Counter(NUMBER.findall(text))


def command_difference(edition: Path) -> str | None:
    for ours, theirs in zip_longest(all_shown(ENGLISH), all_shown(edition), fillvalue="nothing more"):
        if ours != theirs:
            return f"{edition.name}: its blocks first differ here:\n  README.md: {ours}\n  {edition.name}: {theirs}"
    return None


def section_difference(edition: Path) -> str | None:
    for (ours, _), (theirs, _) in zip_longest(sections(ENGLISH), sections(edition), fillvalue=("no more", "")):
        if ours.count("#") != theirs.count("#"):
            return f"{edition.name}: its sections first differ here: README.md has {ours!r}, it has {theirs!r}"
    return None


def link_difference(edition: Path) -> str | None:
    ours, theirs = (
        {link for link in links(page) if not link.startswith(("#", "README."))} for page in (ENGLISH, edition)
    )
    if ours != theirs:
        return f"{edition.name}: no link to {sorted(ours - theirs)}; README.md has none to {sorted(theirs - ours)}"
    return None


def table_difference(edition: Path) -> str | None:
    for ours, theirs in zip_longest(measured(ENGLISH), measured(edition), fillvalue="no row"):
        missing, added = numbers(ours) - numbers(theirs), numbers(theirs) - numbers(ours)
        if missing or added:
            return (
                f"{edition.name}: a row of the table of measurements has {sorted(added.elements())} "
                f"where README.md has {sorted(missing.elements())}:\n  {ours}\n  {theirs}"
            )
    return None


def number_difference(edition: Path) -> str | None:
    for (heading, ours), (_, theirs) in zip(sections(ENGLISH), sections(edition), strict=False):
        if missing := numbers(ours) - numbers(theirs):
            return f"{edition.name}: the section of {heading!r} lacks README.md's {sorted(missing.elements())}"
    return None


CHECKS = [section_difference, command_difference, link_difference, table_difference, number_difference]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("edition", TRANSLATIONS, ids=page_name)
def test_editions_are_in_step(edition, check):
    assert (difference := check(edition)) is None, difference


def test_editions_link_to_each_other():
    editions = {"README.md", "README.ko.md", "README.zh.md"}
    assert {page.name for page in (ENGLISH, *TRANSLATIONS)} == editions
    for page in (ENGLISH, *TRANSLATIONS):
        first = prose(page).partition("\n## ")[0]
        assert set(re.findall(r"\]\((README\.[\w.]*md)\)", first)) == editions - {page.name}, page.name


@pytest.mark.parametrize(
    ("check", "old", "new", "named"),
    [
        (section_difference, "\n### ", "\n## ", "'### Train on your labels'"),
        (command_difference, "--vocab-size 30000", "--vocab-size 32000", "--vocab-size 32000"),
        (command_difference, "<!-- not run: ", "<!-- run with: ", "a block of bash, not run"),
        (command_difference, "$ litebert predict search", "$ litebert search", "$ litebert search"),
        (command_difference, "litebert.Predictor()", "litebert.Predictor('x')", "litebert.Predictor('x')"),
        (command_difference, "make test", "make tests", "make tests"),
        (link_difference, "](docs/server.md)", "](docs/serving.md)", "['docs/server.md']"),
        (table_difference, "59.9 %", "59.8 %", "['59.8'] where README.md has ['59.9']"),
        (number_difference, "15.3", "fifteen", "['15.3']"),
    ],
)
def test_a_difference_is_named(check, old, new, named, tmp_path, monkeypatch):
    text = ENGLISH.read_text(encoding="utf-8")
    assert old in text
    edition = tmp_path / "README.xx.md"
    monkeypatch.setattr("doc_pages.page_name", lambda path: path.name)
    edition.write_text(
        text.replace("# sets everything up", "# 다").replace("# or a folder", "# 또는"), encoding="utf-8"
    )
    assert check(edition) is None  # comments are each edition's own
    edition.write_text(text.replace(old, new), encoding="utf-8")
    difference = check(edition)
    assert difference is not None
    assert difference.startswith("README.xx.md: ")
    assert named in difference
