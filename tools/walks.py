"""Count the files that run on the three walks through litebert: how many a reader opens to follow each.

    python tools/walks.py            prints the files of each walk and their number

Walks: text to a checkpoint (build a store, pretrain), a labelled file to scores (finetune), raw text to an answer
(Predictor). A file counts when one of its functions runs on the walk. Two kinds are set apart: the ground (`GROUND`),
whose functions say at the call what they do (write a file, read JSON, name a mistake), and files in which code ran only
while they were imported (a decorator, a table of patterns): nobody opens those to follow the walk.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import litebert

ROOT = Path(litebert.__file__).parent
# What every part stands on (docs/design.md); `errors` for mistakes, `files` to write, `parse` to read, and so on.
GROUND = {f"{name}.py" for name in ("errors", "parse", "files", "folders", "config", "machine", "extras", "remote")}
WALKS = ("text to a checkpoint", "labelled file to scores", "raw text to an answer")


class Trace(NamedTuple):
    """The files of litebert in which code ran: on the walk itself, and only while they were imported."""

    run: set[str]
    imported: set[str]


def trace(walk: Callable[[], object]) -> Trace:
    """Take a walk and note whose functions run."""
    run: set[CodeType] = set()
    imported: set[CodeType] = set()
    depth = threading.local()  # of imports, one inside the other

    def note(frame: FrameType, event: str, _: Any) -> None:
        importing = getattr(depth, "value", 0)
        if frame.f_code.co_name == "<module>":
            depth.value = importing + (event == "call") - (event == "return")
        elif event == "call":
            (imported if importing else run).add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Trace(files_of(run), files_of(imported) - files_of(run))


def files_of(codes: set[CodeType]) -> set[str]:
    """The files of litebert that some code stands in."""
    places = {Path(code.co_filename) for code in codes if code.co_name != "__getattr__"}  # that of `litebert` itself
    return {str(path.relative_to(ROOT)) for path in places if path.is_relative_to(ROOT)}


def walks(folder: Path) -> dict[str, Callable[[], object]]:
    """The three walks, small enough for a CPU; each needs what the one before wrote."""
    from litebert.text.generate import generate_documents, join_documents

    (folder / "text.txt").write_text(join_documents(generate_documents(200)), encoding="utf-8")
    rows = [f"{'a good day' if number % 2 else 'a sad day'} {number},{number % 2}" for number in range(40)]
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    vocabulary = litebert.train_vocab([str(folder / "text.txt")], litebert.VocabConfig(vocab_size=200)).tokenizer
    vocabulary.save(folder / "tokenizer")

    def checkpoint() -> object:
        litebert.build_store([str(folder / "text.txt")], folder / "tokenizer", folder / "store", workers=1)
        config = litebert.run_config(
            {
                "model": {"preset": "albert-tiny", "vocab_size": 200},
                "data": {"stores": [str(folder / "store")], "tokenizer": str(folder / "tokenizer"), "held_out": 20},
                "recipe": {"name": "paper", "max_length": 64},
                "optim": {"name": "adamw", "lr": 1e-3},
                "steps": 2,
                "batch_tokens": 256,
                "device": {"device": "cpu"},
            }
        )
        return litebert.pretrain(config, folder / "run", quiet=True)

    def scores() -> object:
        config = litebert.finetune_config(
            {
                "model": str(folder / "run" / "model"),
                "data": {"train": str(folder / "rows.csv"), "dev": str(folder / "rows.csv")},
                "steps": 2,
                "device": {"device": "cpu"},
            }
        )
        return litebert.finetune(config, folder / "tuned", quiet=True)

    def answer() -> object:
        return litebert.Predictor(folder / "tuned" / "best", device="cpu").classify("a good day")

    return dict(zip(WALKS, (checkpoint, scores, answer), strict=True))


def main() -> None:
    """Print each walk."""
    met: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walks(Path(folder)).items():
            found = trace(walk)
            files = sorted(found.run - GROUND)
            print(
                f"{name}: {len(files)} files, {len(set(files) - met)} of them on no walk before it "
                f"(apart: {len(found.run & GROUND)} of the ground, {len(found.imported - GROUND)} only imported)"
            )
            print("  " + "\n  ".join(f"{file}{'' if file in met else '  *'}" for file in files))
            met |= found.run


if __name__ == "__main__":
    main()
