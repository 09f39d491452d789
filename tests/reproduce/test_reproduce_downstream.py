"""Downstream columns: fine-tuned on the data sets at hand, and those that are missing are named."""

from __future__ import annotations

import dataclasses
import random

import pytest

from litebert.model.config import ModelConfig
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.pretraining import run as pretraining_run
from litebert.reproduce.budget import Options
from litebert.reproduce.cell import missing_metrics
from litebert.reproduce.downstream import SCORES, find_data_set, score_downstream, score_ensemble
from litebert.reproduce.metrics import METRICS, average_of
from litebert.reproduce.plan import make_plan
from litebert.reproduce.reproduction import judged, score_ensembles
from litebert.reproduce.runner import merge_cells, run_cells
from litebert.reproduce.table import make_table
from litebert.text.tokenizer import Tokenizer

SETTINGS = {
    "steps": 6,
    "batch": 8,
    "max_length": 16,
    "device": {"device": "cpu", "threads": 1},
    "log": {"num_evaluations": 1},
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "glue" / "SST-2").mkdir(parents=True)
    draw = random.Random(0)
    for split, count in (("train", 40), ("dev", 20)):
        lines = [f"{draw.choice(['a good film', 'a bad film'])}\t{draw.randint(0, 1)}" for _ in range(count)]
        (folder / "glue" / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    (folder / "squad").mkdir()
    (folder / "squad" / "dev-v2.0.json").write_text("{}")  # no training set: of no use
    return folder


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    tokenizer = Tokenizer.load(corpus.tokenizer)
    shape = dict(hidden_size=16, embedding_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    folder = tmp_path_factory.mktemp("model")
    save_model(
        PretrainingModel(ModelConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **shape)), folder
    )
    tokenizer.save(folder)
    return folder


def test_scores_and_what_is_missing(model, tasks, tmp_path):
    wanted = ("sst2", "squad2_f1", "squad2_em", "mnli", "average")
    scored = [score_downstream(model, tasks, tmp_path / str(seed), wanted, SETTINGS, seed=seed) for seed in (0, 1)]
    assert set(scored[0].scores) == {"sst2"}
    assert scored[0].missing == ("SQuAD 2.0", "MNLI")
    assert scored[0].scores["sst2"] % 5 == pytest.approx(0, abs=1e-6)  # of 20 examples, in percent
    assert 0 < scored[0].spread["sst2"] < 50
    together = score_ensemble([tmp_path / "0", tmp_path / "1"], tasks, device="cpu")
    assert set(together) == {"sst2"}
    assert together["sst2"] % 5 == pytest.approx(0, abs=1e-6)


def test_a_table_with_tasks_and_an_ensemble(tasks, tiny_scale, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining_run, "measure_peak", lambda device: 1e9)
    rows = {"one": {"model": "albert-base"}, "both": {"model": "albert-base", "ensemble_of": "one"}}
    claim = {"text": "two are better", "metrics": ["sst2"], "of": {"both": 1, "one": -1}, "above": 0}
    columns = ["sst2", "mnli", "average"]
    table = make_table(
        "table9",
        {"title": "t", "varies": "v", "measure": ["mlm"], "paper_columns": columns, "rows": rows, "claims": [claim]},
    )
    scale = dataclasses.replace(tiny_scale, finetune=SETTINGS)
    plan = make_plan(table, scale, corpus, tmp_path, Options(seeds=2, tasks=tasks), vocabulary=300)
    assert run_cells(merge_cells([plan.cells]), tmp_path / "cells", say=lambda _: None) == {}
    score_ensembles(plan)
    outcome = judged(plan)
    assert set(outcome.results.of("one", "sst2")) == {0, 1}
    assert outcome.results.of("both", "average") == outcome.results.of("both", "sst2")  # the only task at hand
    assert outcome.results.missing_tasks == ("MNLI",)
    assert not outcome.results.problems
    # What is finished is finished, until another data set turns up.
    assert not any(missing_metrics(cell, plan.cell_folder(cell)) for cell in plan.cells.values())
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "MNLI").mkdir()
    other = dataclasses.replace(plan.cells["one", 0], tasks=str(tmp_path / "tasks"))
    assert missing_metrics(other, plan.cell_folder(other)) == ("mnli",)
    (verdict,) = outcome.verdicts
    assert verdict.test is not None
    assert verdict.test.method == "t over 2 seeds"


def test_data_sets_are_found_where_they_lie(tasks, tmp_path):
    assert find_data_set("sst-2", tasks) == tasks / "glue" / "SST-2"
    assert find_data_set("sst-2", tasks / "glue") == tasks / "glue" / "SST-2"
    assert find_data_set("squad-2.0", tasks) is None
    (tmp_path / "race" / "train" / "middle").mkdir(parents=True)
    assert find_data_set("race", tmp_path) == tmp_path / "race"
    assert find_data_set("race", tasks) is None


def test_every_task_column_has_a_task():
    columns = {name for name, metric in METRICS.items() if metric.source == "task"} - {"average"}
    assert columns == set(SCORES)


def test_the_two_numbers_of_a_squad_count_as_one():
    scores = {"squad1_f1": 90.0, "squad1_em": 80.0, "sst2": 95.0}
    assert average_of(scores, tuple(scores)) == pytest.approx((85 + 95) / 2)
    assert average_of({}, ("sst2",)) is None
