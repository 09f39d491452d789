"""A tiny corpus, tokenizer and run config, so that whole runs fit into a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from litebert.config import merge
from litebert.pretraining import run as run_module
from litebert.pretraining.config import RunConfig, run_config
from litebert.pretraining.objective import score
from litebert.text.generate import generate_documents
from litebert.text.store import TokenStore
from litebert.text.train_vocab import VocabConfig, train_vocab
from litebert.train.log import read_metrics
from litebert.train.trainer import Trainer


def make_corpus(folder: Path, documents: int = 120) -> Path:
    """tokenizer/ and store/ below `folder`."""
    texts = list(generate_documents(documents, seed=3))
    (folder / "text.txt").write_text("\n\n".join("\n".join(text) for text in texts), encoding="utf-8")
    tokenizer = train_vocab([folder / "text.txt"], VocabConfig(vocab_size=300)).tokenizer
    tokenizer.save(folder / "tokenizer")
    encoded = [tokenizer.encode_batch(text) for text in texts]
    TokenStore.write(folder / "store", encoded, tokenizer.fingerprint, tokenizer.vocab_size)
    return folder


def tiny_config(corpus: Path, **changes: Any) -> RunConfig:
    """A run of a few steps of a model of a few thousand parameters."""
    data = {
        "model": {
            "hidden_size": 16,
            "embedding_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 64,
            "hidden_dropout_prob": 0.1,
        },
        "data": {
            "stores": [str(corpus / "store")],
            "tokenizer": str(corpus / "tokenizer"),
            "held_out": 20,
            "workers": 0,
            "row_tokens": 128,
        },
        "recipe": {"max_length": 64},
        "optim": {"lr": 0.01, "warmup_steps": 2},
        "steps": 8,
        "batch_tokens": 512,
        "micro_batch_tokens": 512,
        "device": {"device": "cpu", "threads": 1},
        "log": {"report_every": 1, "evaluate_every": 4, "evaluate_batches": 2, "checkpoint_every": 3},
    }
    return run_config(merge(data, changes))


def lines(run: Path, kind: str) -> list[dict[str, Any]]:
    """What a run logged of one kind: train, eval or event."""
    return [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == kind]


def poison(monkeypatch: pytest.MonkeyPatch, steps: set[int], value: float = float("nan")) -> None:
    """Make the loss of some steps bad, each time they are tried."""
    seen = {"step": 0}
    enter = Trainer._enter_stage

    def remember(self) -> None:
        seen["step"] = self.step
        enter(self)

    def bad(output, inputs):
        totals = score(output, inputs)
        return totals._replace(mlm_loss=totals.mlm_loss * value) if seen["step"] in steps else totals

    monkeypatch.setattr(Trainer, "_enter_stage", remember)
    monkeypatch.setattr(run_module, "scorer", lambda device: bad)
