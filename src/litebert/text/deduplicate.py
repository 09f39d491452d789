"""Dropping exact duplicates: a second pass over the parts, with 16 bytes per document to remember."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from litebert.text.store_writer import PartRecord, PartWriter, record_batches
from litebert.text.workers import HASH_BYTES

Mask = npt.NDArray[np.bool_]


def find_first(hashes: Sequence[bytes]) -> list[Mask]:
    """For the documents of each part, whether this is their first occurrence in all parts.

    find_first([A + B, A + C]) -> [[True, True], [False, True]], where A, B and C are hashes.
    """
    words = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, HASH_BYTES // 8)
    order = np.lexsort(words.T)  # stable: among equals the first document comes first
    first = np.ones(len(words), np.bool_)
    first[order[1:]] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    ends = np.cumsum([len(part) // HASH_BYTES for part in hashes])
    return np.split(first, ends[:-1])


def keep_documents(source: Path, target: Path, keep: Mask, fingerprint: str, vocab_size: int) -> PartRecord:
    """Copy a part without the documents that are not to be kept, one record batch at a time."""
    with PartWriter(target, fingerprint, vocab_size) as writer:
        done = 0
        for batch in record_batches(source):
            sentences_of, tokens_of = np.diff(batch.document_offsets), np.diff(batch.sentence_offsets)
            documents = keep[done : done + len(sentences_of)]
            sentences = np.repeat(documents, sentences_of)
            writer.add(batch.tokens[np.repeat(sentences, tokens_of)], tokens_of[sentences], sentences_of[documents])
            done += len(sentences_of)
        return writer.close()
