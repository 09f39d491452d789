"""No link of the documentation is dead: every file, heading and name that a page points at exists."""

from __future__ import annotations

import importlib
import importlib.util
import re

import pytest
from doc_pages import PAGES, ROOT, anchors, links, page_name, prose

FILE = re.compile(r"`((?:src|litebert|tests|benchmarks|docs|tools)/[\w./-]+\.\w+)`")
NAME = re.compile(r"`(litebert(?:\.\w+)+)[`(]")


def test_pages_are_found():
    names = {page_name(page) for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "docs/design.md", "docs/results/tokenizer.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page_name(page)}: no file {link}"
        if anchor and target.suffix == ".md":  # the site's theme reads picture.png#only-light
            assert anchor in anchors(target), f"{page_name(page)}: no heading {link}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_and_names_in_sentences_exist(page):
    """`benchmarks/gpu_check.py` and `litebert.model.config` in running text are real."""
    for file in FILE.findall(prose(page)):
        assert (ROOT / file).exists() or (ROOT / "src" / file).exists(), f"{page_name(page)}: no file {file}"
    for name in NAME.findall(prose(page)):
        assert exists(name), f"{page_name(page)}: no {name}"


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    value, *rest = name.split(".")
    thing: object = importlib.import_module(value)
    for part in rest:
        value = f"{value}.{part}"
        if hasattr(thing, part):
            thing = getattr(thing, part)
        elif hasattr(thing, "__path__") and importlib.util.find_spec(value):
            thing = importlib.import_module(value)
        else:
            return False
    return True


def test_names_are_looked_up():
    assert exists("litebert.model.config")
    assert exists("litebert.finetune")
    assert not exists("litebert.model.no_such")
    assert not exists("litebert.load_model.x")


def test_links_and_anchors_are_read_as_markdown_means_them(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c, d!\n## Two\n## Two\n[x](a.md#y) ![i](p.png) `[no](code.md)`\n```\n[no](block.md)\n# no\n```\n"
        '<a href="z.md">z</a> <!-- [no](comment.md) -->\n',
        encoding="utf-8",
    )
    assert links(page) == ["a.md#y", "p.png", "z.md"]
    assert anchors(page) == {"a-b-c-d", "two", "two-1"}
