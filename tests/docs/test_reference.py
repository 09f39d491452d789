"""Generated reference pages are up to date and complete."""

from __future__ import annotations

import importlib.util

import pytest
from doc_pages import ROOT

import litebert


@pytest.fixture(scope="module")
def reference():
    path = ROOT / "tools" / "docs_reference.py"
    spec = importlib.util.spec_from_file_location("docs_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "api.md"])
def test_pages_are_current(reference, name):
    path = ROOT / "docs" / name
    assert path.read_text(encoding="utf-8") == reference.pages()[path], f"docs/{name}: run `make reference`"


def test_every_public_name_is_there():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in litebert.__all__:
        assert f"### {name}\n" in text or (name == "__version__" and name in text), name


def test_every_command_is_there(cli):
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for line in cli("--help").out.splitlines():
        words = line.strip("│ ").split()
        if "│" in line and words and words[0].isalpha():
            assert f"## litebert {words[0]}" in text, words[0]
