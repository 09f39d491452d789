"""How fast are batches made on one core, beside transformers' whole-word collator on the same sequences?

    python benchmarks/batch_speed.py --store STORE --tokenizer TOKENIZER      a store of your own
    python benchmarks/batch_speed.py                                          one made of random tokens

Ours: pairs, n-gram masks, packing, all arrays of a batch. Theirs: DataCollatorForLanguageModeling(whole_word_mask=True)
on lists of ids and offsets, prepared outside of the clock; it does not pad offsets, so they come padded to the longest.
Both run in turn, batch by batch, on one thread; figures are medians over the rounds, of CPU time, which a busy machine
disturbs least. Tokens are real tokens; the ratio is also given for theirs with padding counted as tokens.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

import litebert
from litebert.pretraining.batches import Batch, Batches
from litebert.pretraining.masking import Symbols
from litebert.pretraining.recipes import RECIPES, named_recipe
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer

SPECIALS = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="a token store; default: one of random tokens")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer it was built with")
    parser.add_argument("--recipe", choices=RECIPES, default="paper")
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens per batch")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the collator says on every run that it masks without random tokens
    with tempfile.TemporaryDirectory() as folder:
        if options.store:
            tokenizer = Tokenizer.load(options.tokenizer)
            store = TokenStore.open(options.store, tokenizer)
        else:
            tokenizer = RandomVocabulary()
            store = random_store(Path(folder) / "store", tokenizer)
        print(json.dumps(measure(store, tokenizer, options), indent=1))


def measure(store, tokenizer, options) -> dict:
    recipe = named_recipe(options.recipe, {"max_length": options.max_length})
    opening, batches = timed(Batches, store, tokenizer, recipe, tokens_per_batch=options.tokens)
    source = batches.sources[0]
    planning, chapter = timed(source.chapter, 0)
    chapter_tokens = int(chapter.examples.lengths.sum())
    collators = {kind: make_collator(tokenizer.vocab_size, kind) for kind in ("np", "pt")}
    ours, theirs, fill, padding = [], {kind: [] for kind in collators}, [], []
    for step in range(options.rounds + 2):
        seconds, batch = timed(batches.batch, step)
        tokens = int(batch.starts[batch.num_sequences])
        rates = {}
        for kind, collator in collators.items():
            features = make_features(batch, batches.symbols)
            rates[kind] = tokens / timed(collator, features)[0]
            padded = len(features) * len(features[0]["input_ids"]) / tokens
        if step < 2:  # first calls load and compile things
            continue
        ours.append(tokens / seconds)
        fill.append(tokens / options.tokens)
        padding.append(padded)
        for kind, rate in rates.items():
            theirs[kind].append(rate)
    speed = statistics.median(ours)
    best = max(statistics.median(rates) for rates in theirs.values())
    # Planning a chapter is part of the work, once per chapter.
    whole = 1 / (1 / speed + planning / chapter_tokens)
    return {
        "store": f"{store.num_documents:,} documents, {store.num_tokens:,} tokens"
        + ("" if options.store else " (random)"),
        "recipe": f"{options.recipe}, max_length {options.max_length}, {options.tokens:,} tokens per batch",
        "litebert, tokens per second": round(speed),
        "litebert, chapter planning counted": round(whole),
        "transformers, tokens per second": {kind: round(statistics.median(rates)) for kind, rates in theirs.items()},
        "ratio to the faster of the two": round(whole / best, 1),
        "ratio if its padding counted": round(whole / best / statistics.mean(padding), 1),
        "packing efficiency": round(statistics.mean(fill), 4),
        "seconds to open": round(opening, 2),
        "seconds to plan a chapter": round(planning, 2),
        "tokens of that chapter": chapter_tokens,
        "machine": platform.processor() or platform.machine(),
        "versions": {
            "python": platform.python_version(),
            **{module.__name__: module.__version__ for module in (litebert, np, transformers, torch)},
        },
    }


def timed(function, *arguments, **options):
    """CPU seconds of a call, and what it gave."""
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result


def make_collator(vocab_size: int, kind: str):
    """The collator needs a tokenizer only for padding and special ids: any vocabulary of the right size will do."""
    pieces = [*SPECIALS.values(), *(f"piece{number}" for number in range(5, vocab_size))]
    model = tokenizers.models.WordLevel({piece: number for number, piece in enumerate(pieces)}, "<unk>")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(model), **SPECIALS)
    return transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, return_tensors=kind)


def make_features(batch: Batch, symbols: Symbols) -> list[dict]:
    """The sequences of a batch, unmasked, as a fast tokenizer would give them; offsets leave a gap before each word."""
    tokens = batch.tokens.copy()
    used = batch.labels >= 0
    tokens[batch.masked[used]] = batch.labels[used]
    lengths = np.diff(batch.starts[: batch.num_sequences + 1])
    features = []
    for start, length in zip(batch.starts.tolist(), lengths.tolist(), strict=False):
        ids, segments = tokens[start : start + length], batch.segments[start : start + length]
        padding = int(lengths.max()) - length
        begins = 4 * np.arange(length) + np.cumsum(symbols.starts_word[ids])
        special = np.isin(ids, (symbols.cls_id, symbols.sep_id)).astype(int)
        features.append(
            {
                "input_ids": ids.tolist() + [symbols.pad_id] * padding,
                "token_type_ids": segments.tolist() + [0] * padding,
                "attention_mask": [1] * length + [0] * padding,
                "special_tokens_mask": special.tolist() + [1] * padding,
                "offset_mapping": [*zip(begins.tolist(), (begins + 4).tolist(), strict=True), *[(0, 0)] * padding],
            }
        )
    return features


@dataclass
class RandomVocabulary:
    """30,000 ids, three in four of which begin a word."""

    vocab_size: int = 30_000
    fingerprint: str = "0" * 64
    pad_id: int = 0
    unk_id: int = 1
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4

    def word_starts(self, style: str):
        return np.random.default_rng(0).random(self.vocab_size) < 0.75


def random_store(path: Path, vocabulary: RandomVocabulary) -> TokenStore:
    """Documents as long and sentences as uneven as an encyclopaedia's."""
    rng = np.random.default_rng(0)
    documents = (
        [
            rng.integers(5, vocabulary.vocab_size, max(1, int(length)))
            for length in rng.gamma(4, 7, 1 + int(rng.lognormal(2.4, 1.1)))
        ]
        for _ in range(20_000)
    )
    return TokenStore.write(path, documents, vocabulary.fingerprint, vocabulary.vocab_size)


if __name__ == "__main__":
    main()
