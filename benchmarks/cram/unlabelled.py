"""What a corpus teaches about similarity without any label: examples for the first stage of abilities.py.

    neighbours  a sentence, the next one, and another one of the same article
    echoes      a sentence with words left out, the same with others left out, and the next one
    cloze       a sentence, its paragraph without it, and another paragraph of the same article (Lee et al. 2019)
    lexical     two sentences and the TF-IDF cosine of their characters, which no person labelled

The first three are triplets, in the order near, far: the same sentence is nearer than the next one, the next one
nearer than one further on, its own paragraph nearer than another. In the last, words that two texts share teach the
order of cosines; half of its pairs are a sentence and a part of itself or its neighbour, so that the cosines spread.
abilities.py leaves the last out: in a trial of 40 steps on a CPU, batches of which 10 of 24 pairs were lexical ended
below neighbours alone on STS-B's training pairs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from litebert.text.readers import read_documents
from litebert.text.sentences import split_sentences

SHORTEST, LONGEST = 20, 400  # characters of a sentence
FAR = 3  # sentences: from here on, one of the same article is the far text
LEFT_OUT = 0.35  # of an echo's words
KEPT = 0.2  # of the paragraphs keep their sentence, so that shared words count too
PARAGRAPH = 700  # characters of a paragraph that are read
FITTED = 20_000  # sentences by which the rarity of characters is counted
FILLER = "."  # the third text of a scored pair, which no loss reads

Article = list[list[str]]  # paragraphs of sentences
Triplet = tuple[str, str, str, float | None]  # text, near, far, and a score if there is one


def read_articles(path: Path) -> list[Article]:
    """The articles of a text with one paragraph per line, each with at least one long enough sentence."""
    found = []
    for document in read_documents(path):
        lines = ([s for s in split_sentences(line) if SHORTEST <= len(s) <= LONGEST] for line in document.lines)
        if article := [sentences for sentences in lines if sentences]:
            found.append(article)
    return found


def make_examples(articles: list[Article], sizes: Mapping[str, int], seed: int) -> Iterator[Triplet]:
    """So many examples of each kind, drawn evenly from all sentences that have one."""
    draw = random.Random(seed)
    makers = {"neighbours": _neighbours, "echoes": _echoes, "cloze": _cloze}
    places = [  # every sentence with one behind it
        (flat, number)
        for flat in ([sentence for paragraph in article for sentence in paragraph] for article in articles)
        for number in range(len(flat) - 1)
    ]
    paragraphs = [
        (article, row, number)
        for article in articles
        if len(article) > 1
        for row, paragraph in enumerate(article)
        if len(paragraph) > 2
        for number in range(len(paragraph))
    ]
    for kind, size in sizes.items():
        if not size:
            continue
        chosen = paragraphs if kind == "cloze" else places
        picked = [chosen[number] for number in draw.sample(range(len(chosen)), min(size, len(chosen)))]
        if kind == "lexical":
            yield from _lexical(picked, draw)
        else:
            for place in picked:
                yield (*makers[kind](*place, draw), None)  # type: ignore[operator]


def _neighbours(flat: list[str], number: int, draw: random.Random) -> tuple[str, str, str]:
    far = [*flat[: max(0, number - FAR + 1)], *flat[number + FAR :]]
    return flat[number], flat[number + 1], draw.choice(far) if far else FILLER


def _echoes(flat: list[str], number: int, draw: random.Random) -> tuple[str, str, str]:
    return _thinned(flat[number], LEFT_OUT, draw), _thinned(flat[number], LEFT_OUT, draw), flat[number + 1]


def _cloze(article: Article, row: int, number: int, draw: random.Random) -> tuple[str, str, str]:
    paragraph, other = article[row], article[draw.choice([each for each in range(len(article)) if each != row])]
    rest = paragraph if draw.random() < KEPT else paragraph[:number] + paragraph[number + 1 :]
    return paragraph[number], " ".join(rest)[:PARAGRAPH], " ".join(other)[:PARAGRAPH]


def _thinned(sentence: str, share: float, draw: random.Random) -> str:
    words = sentence.split()
    return " ".join([word for word in words if draw.random() >= share] or words)


def _lexical(places: list[tuple[list[str], int]], draw: random.Random) -> Iterator[Triplet]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    pairs = []
    for flat, number in places:
        text, way = flat[number], draw.random()
        if way < 0.3:
            pairs.append((_thinned(text, draw.uniform(0, 0.7), draw), _thinned(text, draw.uniform(0, 0.7), draw)))
        elif way < 0.5:
            pairs.append((text, flat[number + 1]))
        else:
            other = flat if way < 0.8 else draw.choice(places)[0]
            pairs.append((text, draw.choice(other)))
    counter = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True, min_df=2, dtype=np.float32)
    counter.fit([text for text, _ in pairs[:FITTED]])
    sides = [counter.transform([pair[side] for pair in pairs]) for side in (0, 1)]
    cosines = np.asarray(sides[0].multiply(sides[1]).sum(1)).ravel()  # their rows have length 1
    for (first, second), cosine in zip(pairs, cosines, strict=True):
        yield first, second, FILLER, float(cosine)
