"""The colours of all pages have one source, colors.css: no page redefines one, and none misses one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import litebert
from litebert.page import read_page
from litebert.report.html import assemble_page, draw_header

ROOT = Path(litebert.__file__).parent
COLORS = (ROOT / "colors.css").read_text(encoding="utf-8")
PAGES = sorted(path for path in ROOT.rglob("*.css") if path.name != "colors.css")


def defined(style: str) -> set[str]:
    """The variables that a style sets on screens."""
    on_screens = re.sub(r"@media print \{.*?\n\}", "", style, flags=re.DOTALL)
    return set(re.findall(r"(--[\w-]+):", on_screens))


def test_every_colour_has_a_light_and_a_dark_one():
    light, dark = COLORS.split("@media (prefers-color-scheme: dark)")
    assert defined(light) == defined(dark)
    assert len(defined(light)) > 5


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_sets_a_shared_colour_again(path):
    assert defined(path.read_text(encoding="utf-8")) & defined(COLORS) == set()


def test_reports_and_the_server_begin_with_it():
    report = assemble_page("title", draw_header("", "title", ""), [], None)
    assert f"<style>{COLORS}" in report
    assert read_page("page.css", "server").decode() == COLORS + (ROOT / "page/page.css").read_text(encoding="utf-8")
    assert b"--paper" not in read_page("page.js", "server") + read_page("index.html", "server")
