"""The text of a reproduction: the user's token stores, or a generated corpus for a smoke run.

OUT/corpus/
  held-out*/          a store of documents that no run trains on; every model is scored on it
  vocabulary/ base/ more/    generated, if no data are given
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from litebert.errors import ConfigError
from litebert.files import write_atomic
from litebert.pretraining.chapters import held_out_documents
from litebert.text.build import BuildOptions, build_store
from litebert.text.generate import generate_documents, join_documents
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.text.train_vocab import VocabConfig, train_vocab

# Enough that a run of a few hundred small steps sees no document twice.
GENERATED_DOCUMENTS = 4000
KINDS = ("baking", "repair", "growing")  # few kinds of story, so that their order is learned in a few hundred steps


@dataclass(frozen=True)
class Corpus:
    """Stores of one tokenizer: base data, additional data and held-out documents."""

    tokenizer: Path
    base: tuple[Path, ...]
    more: tuple[Path, ...]
    held_out_store: Path
    #: What training leaves out of each store, as a count or a share.
    held_out: float

    def stores(self, which: Literal["base", "more"]) -> tuple[Path, ...]:
        """The stores that a row trains on."""
        return self.base if which == "base" else (*self.base, *self.more)

    def data_of(self, which: Literal["base", "more"]) -> dict[str, Any]:
        """The `data` part of a run's config."""
        return {
            "stores": [str(path) for path in self.stores(which)],
            "tokenizer": str(self.tokenizer),
            "eval_stores": [str(self.held_out_store)],
            "held_out": self.held_out,
        }

    @functools.cached_property
    def fingerprints(self) -> dict[str, list[list[int]]]:
        """Identifies a corpus, independent of its path: the counts of its stores, for `base` and for `more`."""
        opened = [TokenStore.open(path) for path in (*self.base, *self.more)]
        counts = [[len(store), store.num_sentences, store.num_tokens] for store in opened]
        return {"base": counts[: len(self.base)], "more": counts}


def given_corpus(
    folder: Path, tokenizer: Path | None, base: Sequence[Path], more: Sequence[Path], held_out: float
) -> Corpus:
    """The user's stores; held-out documents are copied into a separate store."""
    if tokenizer is None:
        raise ConfigError("tokenizer: missing; name the one that the token stores were built with")
    vocabulary = Tokenizer.load(tokenizer)
    stores = [TokenStore.open(path, vocabulary) for path in base]
    for path in more:
        TokenStore.open(path, vocabulary)
    counts = [[len(store), store.num_tokens] for store in stores]
    kept = folder / f"held-out-{zlib.crc32(repr((counts, held_out)).encode()):08x}"  # one per corpus
    if not (kept / "manifest.json").exists():
        documents: Iterable[Any] = (
            store.document(int(number))
            for store in stores
            for number in held_out_documents(len(store), held_out).nonzero()[0]
        )
        folder.mkdir(parents=True, exist_ok=True)
        TokenStore.write(kept, documents, vocabulary.fingerprint, vocabulary.vocab_size)
    return Corpus(Path(tokenizer), tuple(base), tuple(more), kept, held_out)


def generated_corpus(folder: Path, vocab_size: int, documents: int | None = None) -> Corpus:
    """Generated stories, half of them as additional data; no held-out sentence occurs in training."""
    documents = documents or GENERATED_DOCUMENTS
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, tuple[int, int, Literal["train", "held-out"]]] = {
        "base": (documents, 1, "train"),
        "more": (documents, 2, "train"),
        "held-out": (max(40, documents // 8), 1, "held-out"),
    }
    for name, (count, seed, split) in parts.items():
        text = folder / f"{name}.txt"
        if not text.exists():
            # Whole stories would always be cut into the same pairs, whose positions give away the order.
            stories = generate_documents(count, seed=seed, split=split, kinds=KINDS, excerpts=True)
            write_atomic(text, join_documents(stories))
    vocabulary = folder / "vocabulary"
    if not (vocabulary / "spiece.model").exists():
        train_vocab([folder / "base.txt"], VocabConfig(vocab_size=vocab_size)).tokenizer.save(vocabulary)
    tokenizer = Tokenizer.load(vocabulary)
    for name in parts:
        if not (folder / name / "manifest.json").exists():
            build_store([folder / f"{name}.txt"], tokenizer, folder / name, BuildOptions(format="lines"), workers=1)
    return Corpus(vocabulary, (folder / "base",), (folder / "more",), folder / "held-out", 0.0)
