"""Training pairs from any text, without labels: what stands close together in a document is close in meaning.

make_pairs("wiki.txt.xz", "adjacent", 1000)   -> {"text": ["It was built in 1902.", ...], "pair": ["It fell ...", ...]}
make_pairs("wiki.txt.xz", "titles", 1000)     -> {"text": ["Town hall", ...], "pair": ["The hall was built ...", ...]}
make_pairs("wiki.txt.xz", "sentences", 1000)  -> {"text": ["It was built in 1902.", ...]}     for SimCSE
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from litebert.errors import DataError
from litebert.tasks.tables import format_of
from litebert.text.readers import Document, read_documents
from litebert.text.sentences import split_sentences
from litebert.text.sources import find_sources

SHORTEST, LONGEST = 20, 1000  # characters of a sentence; shorter ones are headings and fragments
LONGEST_TITLE = 100
PARAGRAPHS = 3  # that the title of a document is paired with: later ones are about details


def make_pairs(source: Path | str, how: str, most: int, seed: int = 0) -> dict[str, list[str]]:
    """Columns of at most `most` sentences or pairs, each as likely as any other, in the order of the text."""
    kept: list[tuple[int, tuple[str, ...]]] = []
    random = np.random.default_rng(seed)
    number = -1
    for number, found in enumerate(_all(source, how)):
        if number < most:
            kept.append((number, found))
        elif (place := int(random.integers(number + 1))) < most:  # a reservoir: one pass, whatever the length
            kept[place] = (number, found)
    if number < 1:
        what = {"titles": "no titles with paragraphs", "adjacent": "no two sentences in a row"}
        raise DataError(f"{source}: {what.get(how, 'no two sentences')} to learn from ({SHORTEST} characters or more)")
    columns = zip(*(found for _, found in sorted(kept)), strict=True)
    return {name: list(values) for name, values in zip(("text", "pair"), columns, strict=False)}


def is_plain_text(path: str) -> bool:
    """Whether a training file is text and no table, so that its sentences are what is learned from."""
    if Path(path).is_dir():
        return False
    try:
        return format_of(path) == "csv" and ".csv" not in Path(path).name.lower()
    except DataError:
        return False


def _all(source: Path | str, how: str) -> Iterator[tuple[str, ...]]:
    for file in find_sources([source]):
        for document in read_documents(file.path):
            if how == "titles":
                yield from _titles(document)
            elif how == "adjacent":
                yield from ((a, b) for a, b in pairwise(_sentences(document)) if _fits(a) and _fits(b) and a != b)
            else:
                yield from ((text,) for text in _sentences(document) if _fits(text))


def _sentences(document: Document) -> list[str]:
    if document.are_sentences:
        return document.lines
    return [sentence for line in document.lines for sentence in split_sentences(line)]


def _titles(document: Document) -> Iterator[tuple[str, str]]:
    """The first line with the paragraphs after it, and every other short line with the one after it."""
    for number, line in enumerate(document.lines):
        after = document.lines[number + 1 : number + 1 + (PARAGRAPHS if number == 0 else 1)]
        if len(line) <= LONGEST_TITLE:
            yield from ((line, paragraph) for paragraph in after if len(paragraph) > max(LONGEST_TITLE, 2 * len(line)))


def _fits(sentence: str) -> bool:
    return SHORTEST <= len(sentence) <= LONGEST
