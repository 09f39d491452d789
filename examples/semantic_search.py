"""Search by meaning: embed lines of text, keep the vectors in a database in one folder, and find the nearest.

    python examples/semantic_search.py "when does it rain?"
    python examples/semantic_search.py "who plays music?" --texts my-lines.txt --model runs/similarity/best

LanceDB is an embedded vector store: no server, one folder. Install it with `pip install "litebert[search]"`. The
vectors come from the model's `embed`: of the default model, with its adapter for similarity. A model that was only
pretrained finds much less.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert import Predictor
from litebert.extras import require

LINES = [
    "Dark clouds gather over the hills, and by noon the rain begins.",
    "The violin teacher plays a slow melody for her students.",
    "A seed needs water, warmth and light before it grows.",
    "The night train to the coast leaves from platform four.",
    "He baked two loaves of bread and sold one of them.",
    "The museum keeps its oldest maps in a room without windows.",
    "Snow closed the mountain road for most of January.",
    "The band recorded its first album in a small kitchen.",
]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", help="what to look for")
    parser.add_argument("--texts", type=Path, help="a file with one text per line; by default a few sentences")
    parser.add_argument("--model", default="default", help="a model folder or a Hub name")
    parser.add_argument("--store", type=Path, help="folder of the database, kept for the next time")
    parser.add_argument("--top", type=int, default=3)
    options = parser.parse_args(arguments)
    lancedb = require("lancedb", "this example")

    lines = LINES
    if options.texts:
        if not options.texts.is_file():
            parser.error(f"{options.texts}: no such file")
        lines = [line.strip() for line in options.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        parser.error(f"{options.texts}: no text in it")
    predictor = Predictor(options.model)
    with tempfile.TemporaryDirectory() as scratch:
        database = lancedb.connect(str(options.store or scratch))
        table = fill(database, predictor, lines)
        query = predictor.embed(options.query, normalize=True)
        found = table.search(query).distance_type("cosine").limit(options.top).to_list()
    print(f"{len(lines)} texts, vectors of {len(query)} numbers")
    for row in found:
        print(f"{1 - row['_distance']:.3f}  {row['text']}")


def fill(database: Any, predictor: Predictor, lines: list[str]) -> Any:
    """A table with a row per text: the text and its vector."""
    vectors = predictor.embed(lines, normalize=True)  # [N, H]
    rows = [{"text": line, "vector": vector} for line, vector in zip(lines, vectors, strict=True)]
    return database.create_table("texts", rows, mode="overwrite")


if __name__ == "__main__":
    main()
