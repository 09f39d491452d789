"""The recipe `google` against the released procedure, told once more with Python's own random numbers.

The slow texts beside this one share their draws with the fast code, and would share a misreading too; this one shares
nothing, so only shares and means can be compared.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from small_stores import FIRST, MemoryStore, SmallVocabulary, random_documents

from litebert.pretraining.chapters import cut_stretches, lay_out
from litebert.pretraining.draws import draw, make_key
from litebert.pretraining.examples import plan_examples
from litebert.pretraining.masking import Symbols, mask_text
from litebert.pretraining.recipes import named_recipe

LENGTH = 128
VOCABULARY = SmallVocabulary(2000)


class Vocabulary(SmallVocabulary):
    """Words of several pieces in the released style too."""

    def word_starts(self, style):
        return super().word_starts("spaces")


def released_pairs(documents, rng):
    """(A, B, label) of one pass over all documents."""
    room = LENGTH - 3
    for number, document in enumerate(documents):
        target = rng.randint(2, room) if rng.random() < 0.1 else room
        chunk, place = [], 0
        while place < len(document):
            chunk.append(document[place])
            if place == len(document) - 1 or sum(map(len, chunk)) >= target:
                cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a, b = (list(chain.from_iterable(part)) for part in (chunk[:cut], chunk[cut:]))
                label = 0
                if len(chunk) == 1:
                    label = 1
                    other = rng.choice([n for n in (rng.randrange(len(documents)) for _ in range(10)) if n != number])
                    for sentence in documents[other][rng.randrange(len(documents[other])) :]:
                        b = b + sentence
                        if len(b) >= target - len(a):
                            break
                elif rng.random() < 0.5:
                    a, b, label = b, a, 1
                while len(a) + len(b) > room:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if rng.random() < 0.5 else -1)
                yield a, b, label
                chunk = []
            place += 1


def released_spans(a, b, ids, starts_word, rng):
    """The n-grams that are masked in one pair, each as its words, and whether it goes from A over into B."""
    words: list[list[int]] = []
    for place, token in enumerate([*a, *b]):
        if words and not starts_word[ids[token]]:
            words[-1].append(place)
        else:
            words.append([place])
    budget = min(20, max(1, round((len(a) + len(b) + 3) * 0.15)))
    covered: set[int] = set()
    for first in rng.sample(range(len(words)), len(words)):
        n = rng.choices((1, 2, 3), (1, 1 / 2, 1 / 3))[0]
        while n and len(covered) + sum(map(len, words[first : first + n])) > budget:
            n -= 1
        places = list(chain.from_iterable(words[first : first + n]))
        if places and covered.isdisjoint(places):
            covered.update(places)
            yield len(words[first : first + n]), places[0] < len(a) <= places[-1]


@pytest.fixture(scope="module")
def store():
    documents = [document[:40] for document in random_documents(1200, seed=1)] + [[20], [35], [50]] * 50
    store = MemoryStore(documents)
    store.ids = np.random.default_rng(5).integers(FIRST, VOCABULARY.vocab_size, store.num_tokens).astype(np.int32)
    return store


def test_pairs_and_spans_have_the_shares_of_the_released_script(store):
    recipe = named_recipe("google", {"max_length": LENGTH})
    vocabulary = Vocabulary(VOCABULARY.vocab_size)
    stretches = cut_stretches(store, np.ones(len(store.documents), bool), 1 << 20)
    text = lay_out(store, stretches, np.arange(len(stretches.start)), recipe)
    rng = random.Random(3)
    documents = []
    for first, last in pairwise(store.document_offsets.tolist()):
        offsets = store.sentence_offsets[first : last + 1].tolist()
        documents.append([list(range(begin, end)) for begin, end in pairwise(offsets)])
    owner = np.searchsorted(store.sentence_offsets[store.document_offsets], np.arange(store.num_tokens), "right")

    theirs = [pair for _ in range(2) for pair in released_pairs(documents, rng)]
    ours = []
    for epoch in range(2):
        examples = plan_examples(text, recipe, make_key(epoch))
        columns = (examples.first_start, examples.first_length, examples.second_start, examples.second_length)
        for a, size_a, b, size_b, label in zip(*columns, examples.order, strict=True):
            ours.append((range(a, a + size_a), range(b, b + size_b), int(label)))
    found = []
    for pairs in (theirs, ours):
        whole = [(a, b, label) for a, b, label in pairs if len(a) and len(b)]
        found.append(
            {
                "swapped or random": np.mean([label for _, _, label in pairs]),
                "of another document": np.mean([owner[a[0]] != owner[b[0]] for a, b, _ in whole]),
                "full": np.mean([len(a) + len(b) == LENGTH - 3 for a, b, _ in pairs]),
                "A": np.mean([len(a) for a, _, _ in pairs]) / LENGTH,
                "B": np.mean([len(b) for _, b, _ in pairs]) / LENGTH,
            }
        )
    assert len(ours) == pytest.approx(len(theirs), rel=0.03)
    assert found[1] == pytest.approx(found[0], abs=0.025)

    starts_word = vocabulary.word_starts("google")
    spans = [span for a, b, _ in theirs for span in released_spans(a, b, store.ids, starts_word, rng)]
    segments = np.array([(len(a), len(b)) for a, b, _ in ours])
    ids = np.concatenate([store.ids[[*a, *b]] for a, b, _ in ours])
    budgets = np.array([recipe.num_to_predict(int(size)) for size in segments.sum(axis=1) + 3])
    keys = draw(make_key(9), np.arange(len(ours)))
    masks = mask_text(ids, segments, budgets, keys, recipe, Symbols.of(vocabulary, recipe))
    begin = masks.places[np.cumsum(masks.span_tokens) - masks.span_tokens]
    end = masks.places[np.cumsum(masks.span_tokens) - 1]
    segment = [np.searchsorted(np.cumsum(segments), places, side="right") for places in (begin, end)]
    assert (segment[0] != segment[1]).mean() == pytest.approx(np.mean([crosses for _, crosses in spans]), abs=0.002)
    sizes, expected = Counter(masks.span_words.tolist()), Counter(n for n, _ in spans)
    for n in (1, 2, 3):
        assert sizes[n] / sizes.total() == pytest.approx(expected[n] / expected.total(), abs=0.01)
    assert sizes.total() / len(ours) == pytest.approx(len(spans) / len(theirs), rel=0.02)
