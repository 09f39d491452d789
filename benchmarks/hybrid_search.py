"""Search by words, by vectors and by both: recall and nDCG at 10 of SQuAD's questions over its paragraphs.

    python benchmarks/hybrid_search.py DATA --out results/search                  # dev: all 2,067 paragraphs
    python benchmarks/hybrid_search.py DATA --split train --articles 12 --questions 800 --out results/search-train

DATA holds squad/. Vectors are those of --model (default:similarity), written to OUT and read from there the next time.
Each --weight is the share of words in the score (`lexical` of Predictor.search); 0 is vectors alone, 1 BM25 alone. The
package's own weight was chosen on train. SCORES.md has the table with 95 % intervals over questions.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.files import write_atomic
from litebert.predict.predictor import Predictor
from litebert.tasks.kinds.similarity import search_ranks
from litebert.tasks.metrics import score, show_interval, show_value
from litebert.tasks.read import read_task
from litebert.text.lexical import WordSearch

SHOWN = ("recall_at_10", "ndcg_at_10", "recall_at_1", "mrr_at_10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="default:similarity")
    parser.add_argument("--split", choices=("train", "dev"), default="dev")
    parser.add_argument("--articles", type=int, default=0, help="drawn at random; 0: all")
    parser.add_argument("--questions", type=int, default=0, help="drawn at random; 0: all")
    parser.add_argument("--weight", type=float, nargs="+", default=[0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    paragraphs, pairs = read_pairs(arguments)
    asked, places = [question for question, _ in pairs], np.array([place for _, place in pairs])
    cosines = embed(arguments, "questions", asked) @ embed(arguments, "paragraphs", paragraphs).T  # [N, M]
    by_words = WordSearch(paragraphs).scores(asked)
    data = read_task("similarity", dev=[{"question": q, "passage": paragraphs[p]} for q, p in pairs])
    lines = [f"| share of words | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for weight in arguments.weight:
        mixed = (1 - weight) * cosines + weight * by_words
        ranks = search_ranks(lambda rows, mixed=mixed: mixed[rows], places)
        found = score(data.task, data.dev["dev"], ranks.tolist())
        cells = [f"{show_value(found[name].value, name)} ({show_interval(found[name], name)})" for name in SHOWN]
        lines.append(f"| {weight:g} | {' | '.join(cells)} |")
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    counts = f"{len(asked):,} questions over {len(paragraphs):,} paragraphs"
    note = (
        f"{arguments.model}, SQuAD 1.1 {arguments.split}: {counts}; "
        f"{machine}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}."
    )
    write_atomic(arguments.out / "SCORES.md", "\n".join([*lines, "", note, ""]))
    print("\n".join([*lines, "", note]))


def read_pairs(arguments: argparse.Namespace) -> tuple[list[str], list[tuple[str, int]]]:
    """The different paragraphs, and questions with the places of theirs."""
    [path] = (arguments.data / "squad").glob(f"{arguments.split}*1.1*.json")
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    if arguments.articles:
        articles = random.Random(0).sample(articles, arguments.articles)
    every = [paragraph for article in articles for paragraph in article["paragraphs"]]
    paragraphs = list(dict.fromkeys(paragraph["context"] for paragraph in every))
    place = {text: number for number, text in enumerate(paragraphs)}
    found = [(each["question"], place[paragraph["context"]]) for paragraph in every for each in paragraph["qas"]]
    if arguments.questions:
        found = random.Random(0).sample(found, arguments.questions)
    return paragraphs, found


def embed(arguments: argparse.Namespace, name: str, texts: list[str]) -> NDArray[np.float64]:
    """The vectors of some texts, of length 1."""
    path = arguments.out / f"{name}.npy"
    if not path.exists():
        np.save(path, Predictor(arguments.model, device=arguments.device).embed(texts))
    vectors = np.load(path).astype(np.float64)
    assert len(vectors) == len(texts), f"{path}: vectors of other texts; delete it"
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
