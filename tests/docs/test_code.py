"""The code of the documentation runs: every block of a page in turn, in a folder with small models and texts.

A block that is not run says why, in a comment before it (see doc_pages.py).
"""

from __future__ import annotations

import re
import shutil

import pytest
import yaml
from doc_pages import (
    GENERATED,
    PAGES,
    ROOT,
    RUNNABLE,
    SHOWS_COMMAND,
    TRANSLATIONS,
    Block,
    blocks,
    litebert_arguments,
    page_name,
)

from litebert.errors import LitebertError
from litebert.tasks.kinds import KINDS

PAGES_WITH_CODE = [
    page
    for page in PAGES
    if page_name(page) not in GENERATED
    and page not in TRANSLATIONS
    and any(block.language in RUNNABLE for block in blocks(page))
]


# What a reader of the README has: texts, tables, and a released model. What a command needs beside, one before made.
OWN_FILES = {"README.md": ("mytext.txt", "other.txt", "train.csv", "dev.csv", "test.csv", "albert")}


@pytest.fixture(autouse=True)
def same_kinds():
    """A page may register a kind of task; other tests do not know it."""
    before = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(before)


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=page_name)
def test_blocks_run(page, prepared, tmp_path, monkeypatch, cli):
    here = tmp_path / "here"
    only = OWN_FILES.get(page_name(page))
    ignore = None if only is None else lambda folder, names: {*names} - {*only} if folder == str(prepared) else set()
    shutil.copytree(prepared, here, symlinks=True, ignore=ignore)
    monkeypatch.chdir(here)
    names: dict[str, object] = {"__name__": "__docs__"}
    for block in blocks(page):
        if block.not_run is None:
            try:
                check_block(block, names, cli)
            except Exception as error:
                error.add_note(f"in {block.where}:\n{block.text}")
                raise


def check_block(block: Block, names: dict[str, object], cli) -> None:
    if block.language == "python":
        exec(compile("\n" * block.line + block.text, block.page, "exec"), names)
    elif block.language == "yaml":
        from litebert.pretraining.config import run_config

        run_config(yaml.safe_load(block.text))
    elif block.language in ("bash", "console"):
        for command in block.commands():
            assert command[0] == "litebert", f"only litebert is run here; say '<!-- not run: why -->' for {command[0]}"
            result = cli(*litebert_arguments(command), *block.run_with)
            assert result.code == 0, f"{' '.join(command)}\n{result}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_nothing_is_left_out_in_silence(page):
    """Commands stand in bash or console blocks, which are run, and reasons for not running are reasons.

    Results are records of what was run once, and READMEs have a test of their own: their commands are only parsed.
    """
    for block in blocks(page):
        if block.not_run is not None:
            assert len(block.not_run.split()) > 1, f"{block.where}: say why it is not run"
            for test in re.findall(r"tests/[\w/]+(?:\.py)?", block.not_run):
                assert (ROOT / test).exists(), f"{block.where}: no {test}"
        if page_name(page).startswith("docs/") and page.parent.name != "results" and not block.language:
            shown = [line for line in block.text.splitlines() if SHOWS_COMMAND.match(line)]
            assert not shown, f"{block.where}: a bash block would be checked: {shown[0]}"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "assert 1 + 1 == 3"),
        ("bash", "litebert params albert-bse"),
        ("bash", "make quickstart"),
        ("console", "$ litebert params --no-such-option"),
        ("yaml", "steps: none"),
    ],
)
def test_a_block_that_fails_is_noticed(language, text, cli):
    with pytest.raises((AssertionError, LitebertError)):
        check_block(Block("x.md", 1, language, text + "\n"), {}, cli)


def test_marks_before_blocks_are_read(tmp_path, monkeypatch):
    page = tmp_path / "x.md"
    page.write_text(
        "<!-- not run: a b -->\n```bash\nx\n```\n<!-- run with: --set 'a=b c' -->\n```bash\ny\n```\n", "utf-8"
    )
    monkeypatch.setattr("doc_pages.ROOT", tmp_path)
    first, second = blocks(page)
    assert (first.not_run, first.run_with, first.line) == ("a b", (), 2)
    assert (second.not_run, second.run_with, second.text) == (None, ("--set", "a=b c"), "y\n")
