"""The public names: all there, documented, typed, and loaded only when used."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import litebert

ROOT = Path(litebert.__file__).parent
VALUES = [name for name in litebert.__all__ if name != "__version__"]
# Triton's kernels are launched by the functions beside them and described at the top of their file.
FILES = [path for path in sorted(ROOT.rglob("*.py")) if not path.stem.endswith("_kernels")]


@pytest.mark.parametrize("name", VALUES)
def test_every_public_name_is_documented_and_typed(name):
    value = getattr(litebert, name)
    if not callable(value):
        assert name.isupper(), "only constants go without a docstring"
        return
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own, name
    assert not own.startswith(f"{name}("), "made by dataclass"
    assert own.strip().splitlines()[0].rstrip().endswith((".", ":", "?")), f"{name}: the first line is no sentence"
    function = value
    if inspect.isclass(value):
        if dataclasses.is_dataclass(value) or issubclass(value, Exception):
            return  # fields are typed by their nature
        function = value.__init__
    untyped = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation is parameter.empty and parameter.name != "self"
    ]
    assert not untyped, f"{name}: {untyped}"
    if not inspect.isclass(value):
        assert "return" in value.__annotations__, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_public_function_and_class_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = list(public_definitions(tree.body))
    # A method of a base class speaks for others; the kinds of tasks have theirs in files of their own.
    bases = [ROOT / "tasks" / name for name in ("own.py", "kinds/kind.py")] if "kinds" in path.parts else []
    inherited = [
        node for base in bases for node in public_definitions(ast.parse(base.read_text(encoding="utf-8")).body)
    ]
    explained = {node.name for node in [*found, *inherited] if ast.get_docstring(node)}
    missing = [
        f"{node.name} (line {node.lineno})" for node in found if node.name not in explained and node.name != "forward"
    ]
    assert not missing


def public_definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes without a leading underscore, and their methods; without overloads and protocols' stubs."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from public_definitions(node.body)
        elif ast.unparse(node.body[-1]) == "...":
            continue
        yield node


def test_type_checkers_see_the_same_names():
    """The TYPE_CHECKING imports and the lazy table say the same."""
    tree = ast.parse(Path(litebert.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    # "import name as name": a strict type checker takes other imports for private ones.
    typed = {alias.asname: node.module for node in block.body for alias in node.names if alias.asname == alias.name}
    assert typed == litebert._MODULE_OF


def test_the_package_is_marked_as_typed():
    assert (ROOT / "py.typed").is_file()


def test_import_does_not_load_torch():
    code = "import sys, litebert, litebert.cli; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(litebert, "albert")


def test_a_wrong_name_is_answered_with_the_right_one():
    for name, hint in (
        ("load", "load_model"),
        ("pretrian", "pretrain"),
        ("embed", r"Predictor\(\) has it as a method"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{hint}"):
            getattr(litebert, name)
    assert not hasattr(litebert, "__wrapped__")


def test_abilities_are_known_as_methods():
    from litebert.predict.abilities import ABILITIES

    for name in ABILITIES:
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'; litebert\.Predictor\(\) has it as a method"):
            getattr(litebert, name)
