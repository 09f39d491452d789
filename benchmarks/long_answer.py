"""What does a very long context cost apart from the model: offsets, windows, and finding the best spans?

    python benchmarks/long_answer.py VOCABULARY [--megabytes 10]

A text of random words of the vocabulary, and made-up outputs of a span head for each of its windows. Seconds are
processor time; memory is the peak above what was there before.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from litebert.tasks.kinds.question_answering import question_windows
from litebert.tasks.spans import best_spans
from litebert.tasks.task import Task
from litebert.text.tokenizer import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary", type=Path, help="a folder with a tokenizer")
    parser.add_argument("--megabytes", type=float, default=10.0)
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.vocabulary)
    random = np.random.default_rng(0)
    words = [piece[1:] for piece in tokenizer.pieces if piece[0] == "▁" and piece[1:].isalpha()]
    if not words:
        words = [piece for piece in tokenizer.pieces if piece.isalpha()]
    lines, size = [], 0
    while size < options.megabytes * 1e6:  # line by line, so that making it costs less memory than reading it
        lines.append(" ".join(random.choice(words, 1000)))
        size += len(lines[-1].encode()) + 1
    text = "\n".join(lines)

    before, begin = peak(), time.process_time()
    windows = question_windows(Task("qa", "question-answering", max_length=384), tokenizer, " ".join(words[:8]), text)
    print(f"{len(windows):,} windows: {time.process_time() - begin:.1f} s, {peak() - before:,.0f} MiB")
    outputs = [{name: random.normal(size=len(window.ids)) for name in ("start", "end")} for window in windows]
    before, begin = peak(), time.process_time()
    best_spans(windows, outputs, text)
    print(f"best spans: {time.process_time() - begin:.1f} s, {peak() - before:,.0f} MiB")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
