"""Count the files that run on the three walks through litebert: how many a reader opens to follow each.

    python tools/walks.py            prints the files of each walk and their number

Walks: text to a checkpoint (build a store, pretrain), a labelled file to scores (finetune, evaluate), raw text to an
answer (Predictor). A file counts when one of its functions runs, also while it is imported.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import litebert

ROOT = Path(litebert.__file__).parent
WALKS = ("text to a checkpoint", "labelled file to scores", "raw text to an answer")


def trace(walk: Callable[[], object]) -> set[str]:
    """The files of litebert in which a function ran."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    places = {Path(code.co_filename) for code in seen if code.co_name not in ("<module>", "__getattr__")}
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
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walks(Path(folder)).items():
            files = sorted(trace(walk))
            print(f"{name}: {len(files)} files\n  " + "\n  ".join(files))


if __name__ == "__main__":
    main()
