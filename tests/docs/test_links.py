"""No link of the documentation is dead: every file and every heading that a page points at exists."""

from __future__ import annotations

import pytest
from doc_pages import PAGES, anchors, links, page_name


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
        if anchor:
            assert anchor in anchors(target), f"{page_name(page)}: no heading {link}"


def test_links_and_anchors_are_read_as_markdown_means_them(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c, d!\n## Two\n## Two\n[x](a.md#y) ![i](p.png) `[no](code.md)`\n```\n[no](block.md)\n# no\n```\n"
        '<a href="z.md">z</a> <!-- [no](comment.md) -->\n',
        encoding="utf-8",
    )
    assert links(page) == ["a.md#y", "p.png", "z.md"]
    assert anchors(page) == {"a-b-c-d", "two", "two-1"}
