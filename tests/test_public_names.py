"""The public names: all there, documented, and loaded only when used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import litebert


def test_every_public_name_exists_and_is_documented():
    for name in litebert.__all__:
        value = getattr(litebert, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


def test_type_checkers_see_the_same_names():
    """The TYPE_CHECKING imports and the lazy table say the same."""
    tree = ast.parse(Path(litebert.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert typed == litebert._MODULE_OF


def test_import_and_help_do_not_load_torch():
    code = "import sys, litebert, litebert.cli; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(litebert, "albert")
