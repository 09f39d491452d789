"""A corpus, a scale and a table so small that whole reproductions fit into a test."""

from __future__ import annotations

import pytest

from litebert.reproduce.corpus import generated_corpus
from litebert.reproduce.paper import make_table
from litebert.reproduce.scale import Scale


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return generated_corpus(tmp_path_factory.mktemp("reproduce") / "corpus", vocab_size=300, documents=150)


@pytest.fixture
def tiny_scale():
    return Scale(
        name="cpu",
        about="tests",
        length=64,
        vocabulary=300,
        evaluation_tokens=2048,
        steps=6,
        hidden={768: 16, 1024: 16},
        depth={12: 2, 24: 3},
        layers={1: 1, 3: 2, 6: 3},
        embedding={64: 4, 128: 8, 768: 16},
        head_size=8,
        run={
            "recipe": {"name": "paper"},
            "optim": {"name": "adamw", "lr": 1e-3, "warmup_steps": 2},
            "batch_tokens": 256,
            "micro_batch_tokens": 256,
            "data": {"workers": 0},
            "device": {"device": "cpu", "threads": 1},
            "log": {"report_every": 1, "evaluate_every": 3, "evaluate_batches": 1, "checkpoint_every": 2},
        },
    )


@pytest.fixture
def tiny_table():
    return make_table(
        "table5",
        {
            "title": "Tiny",
            "varies": "the objective",
            "paper_columns": ["mlm", "sop"],
            "measure": ["mlm", "sop"],
            "row": {"model": "albert-base"},
            "rows": {
                "nsp": {"objective": "nsp", "paper": [54.5, 52.0]},
                "sop": {"objective": "sop", "paper": [54.0, 86.5]},
            },
            "claims": [{"text": "SOP is learned", "metrics": ["sop"], "of": {"sop": 1, "nsp": -1}, "above": 0}],
        },
    )
