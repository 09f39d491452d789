"""Stores and vocabularies for the tests of this folder: tokens that say where they come from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST = 5  # the first ordinary id
FINGERPRINT = "f" * 64


@dataclass
class MemoryStore:
    """A store in memory whose token number t has the id FIRST + t, unless ids are given."""

    documents: list[list[int]]  # sentence lengths
    ids: np.ndarray | None = None
    fingerprint: str = FINGERPRINT
    sentence_offsets: np.ndarray = field(init=False)
    document_offsets: np.ndarray = field(init=False)

    def __post_init__(self):
        sentences = [length for document in self.documents for length in document]
        self.sentence_offsets = np.concatenate([[0], np.cumsum(sentences)]).astype(np.int64)
        counts = [len(document) for document in self.documents]
        self.document_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if self.ids is None:
            self.ids = FIRST + np.arange(self.sentence_offsets[-1])

    @property
    def num_tokens(self):
        return int(self.sentence_offsets[-1])

    def gather(self, starts, stops, out=None):
        pieces = [self.ids[start:stop] for start, stop in zip(starts, stops, strict=True)]
        tokens = np.concatenate([np.empty(0, np.int32), *pieces])
        if out is None:
            return tokens
        out[:] = tokens
        return out


@dataclass
class SmallVocabulary:
    """A tokenizer without text: every third id or so goes on with the word before it."""

    vocab_size: int
    fingerprint: str = FINGERPRINT
    pad_id: int = PAD
    unk_id: int = UNK
    cls_id: int = CLS
    sep_id: int = SEP
    mask_id: int = MASK

    def word_starts(self, style):
        ids = np.arange(self.vocab_size)
        starts = (ids * 2654435761 % 1000) < 700
        starts |= style == "google"
        return starts


def random_documents(num: int, seed: int = 0, sentences: float = 12.0, words: float = 20.0) -> list[list[int]]:
    """Sentence lengths of documents as uneven as real ones."""
    rng = np.random.default_rng(seed)
    return [
        (1 + rng.gamma(2.0, words / 2, size=1 + int(rng.exponential(sentences)))).astype(int).tolist()
        for _ in range(num)
    ]


def numbered_vocabulary(store: MemoryStore) -> SmallVocabulary:
    """A vocabulary large enough for a store whose ids are token numbers."""
    return SmallVocabulary(FIRST + store.num_tokens)


def same_batch(one, other) -> bool:
    """Whether all arrays of two batches are equal."""
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
