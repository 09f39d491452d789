"""Imports point one way, from the commands down to the ground floor: the table below says how."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import litebert

ROOT = Path(litebert.__file__).parent
GROUND = {"errors", "files", "parse", "folders", "config", "extras", "machine", "remote", "litebert"}
# Which parts each part may import from; every part may import from itself.
ALLOWED = {
    "ground": set(),
    "text": {"ground"},
    "model": {"ground"},
    "tasks": {"ground", "text"},
    "train": {"ground", "text", "model"},
    "pretraining": {"ground", "text", "model", "train"},
    "baselines": {"ground", "text", "model", "tasks", "train", "pretraining"},
    "predict": {"ground", "text", "model", "tasks", "train"},
    "page": {"ground"},
    "export": {"ground", "text", "model", "tasks", "train", "predict", "page"},
    "bulk": {"ground", "text", "model", "tasks", "train", "predict"},
    "serve": {"ground", "text", "predict", "page"},
    "finetuning": {"ground", "text", "model", "tasks", "train", "baselines", "predict"},
    "evaluation": {"ground", "tasks", "pretraining", "finetuning"},
    "bench": {"ground", "text", "model", "train", "pretraining"},
    "reproduce": {"ground", "text", "model", "tasks", "train", "pretraining", "finetuning"},
    "report": {"ground", "model", "tasks", "train", "baselines", "finetuning", "reproduce"},
    "quickstart": {"ground", "text", "model", "train", "pretraining", "baselines", "predict", "report"},
}
ALLOWED["cli"] = set().union(*ALLOWED.values(), ALLOWED)


def part_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in GROUND:
        return "ground"
    if parts[1] == "__main__":
        return "cli"
    return parts[1]


def imports_of(path: Path) -> set[str]:
    """Modules of ours that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module)
    return {name for name in found if name.split(".")[0] == "litebert"}


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_imports_point_one_way(path):
    relative = path.relative_to(ROOT).with_suffix("")
    own = part_of(".".join(("litebert", *relative.parts)))
    assert own in ALLOWED, f"{path}: a new part; say in this test what it may import"
    for module in imports_of(path):
        assert part_of(module) in ALLOWED[own] | {own}, f"{relative} ({own}) imports {module}"


@pytest.mark.parametrize("part", ["text", "tasks", "baselines"])
def test_parts_without_torch(part):
    for path in (ROOT / part).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # The losses of task kinds, and a tokenizer asked for tensors, import it when called; types name its tensors.
        lazy = {id(node) for function in ast.walk(tree) if _is_lazy(function) for node in ast.walk(function)}
        for node in ast.walk(tree):
            if (part == "tasks" or path.name == "tokenizer.py") and id(node) in lazy:
                continue
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "torch" for name in names), path


def _is_lazy(node: ast.AST) -> bool:
    """What does not run when its file is imported: functions, and imports for types."""
    typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return typing or isinstance(node, ast.FunctionDef)


def test_tasks_are_read_and_scored_without_torch():
    code = "import sys, litebert.tasks.read, litebert.tasks.metrics; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_worker_whose_model_runs_elsewhere_starts_without_torch():
    """Fifteen of them start at once beside a GPU."""
    code = "import sys, litebert.bulk.local, litebert.predict.predictor; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
