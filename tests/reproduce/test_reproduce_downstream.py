"""Downstream columns: fine-tuned on the data sets at hand, and those that are missing are named."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from scipy import stats
from tiny_shape import tiny_shape

from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.pretraining import run as pretraining_run
from litebert.reproduce import downstream
from litebert.reproduce.cell import missing_metrics
from litebert.reproduce.downstream import SCORES, compare, find_data_set, score_downstream, score_ensemble
from litebert.reproduce.paper import METRICS, average_error, average_of, make_table
from litebert.reproduce.plan import Options, make_plan
from litebert.reproduce.reproduction import judged, score_ensembles
from litebert.reproduce.runner import merge_cells, run_cells
from litebert.reproduce.verdicts import judge
from litebert.tasks.decode import Prediction
from litebert.tasks.task import Task, TextExample
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
    folder = tmp_path_factory.mktemp("model")
    shape = tiny_shape(vocab_size=tokenizer.vocab_size, num_hidden_layers=1, max_position_embeddings=64)
    save_model(PretrainingModel(shape), folder)
    tokenizer.save(folder)
    return folder


def test_scores_and_what_is_missing(model, tasks, tmp_path):
    wanted = ("sst2", "squad2_f1", "squad2_em", "mnli", "average")
    scored = [score_downstream(model, tasks, tmp_path / str(seed), wanted, SETTINGS, seed=seed) for seed in (0, 1)]
    assert set(scored[0].scores) == {"sst2"}
    assert scored[0].missing == ("SQuAD 2.0", "MNLI")
    assert scored[0].scores["sst2"] % 5 == pytest.approx(0, abs=1e-6)  # of 20 examples, in percent
    assert 0 < scored[0].spread["sst2"] < 50
    together = score_ensemble([tmp_path / "0", tmp_path / "1"], tasks, wanted)
    assert set(together) == {"sst2"}
    assert together["sst2"].score % 5 == pytest.approx(0, abs=1e-6)
    members = [one.scores["sst2"] for one in scored]
    assert together["sst2"].gain == pytest.approx(together["sst2"].score - sum(members) / 2)


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("questions") / "squad", random.Random(1)
    folder.mkdir()
    for split, count in (("train", 24), ("dev", 16)):
        paragraphs = []
        for number in range(count):
            thing, place = draw.choice(["cat", "dog"]), draw.choice(["house", "garden"])
            answers = [] if number % 2 else [{"text": place, "answer_start": len(f"The {thing} is in the ")}]
            asked = {"id": f"{split}{number}", "question": f"Where is the {thing}?", "answers": answers}
            qas = [{**asked, "is_impossible": not answers}]
            paragraphs.append({"context": f"The {thing} is in the {place}.", "qas": qas})
        (folder / f"{split}-v2.0.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return folder.parent


def test_an_ensemble_of_a_model_and_itself_is_that_model(model, squad, tmp_path, monkeypatch):
    """The same examples (a limit holds for both) and the same no-answer threshold: nothing is gained."""
    settings = {**SETTINGS, "max_length": 40, "data": {"limit": 9}}
    wanted = ("squad2_f1", "squad2_em")
    alone = score_downstream(model, squad, tmp_path, wanted, settings)
    written = json.loads((tmp_path / "squad-2.0" / "scores.json").read_text())["splits"]["dev"]
    for metric, name in (("squad2_f1", "best_f1"), ("squad2_em", "best_exact_match")):
        assert alone.scores[metric] == pytest.approx(100 * written[name]["value"])
    asked = []
    monkeypatch.setattr(
        downstream, "predict_split", lambda *a, original=downstream.predict_split: asked.append(a) or original(*a)
    )
    together = score_ensemble([tmp_path, tmp_path], squad, wanted)
    assert len(asked) == 2  # each member once, for F1 and exact match
    assert {len(split.examples) for _, _, split, _ in asked} == {9}
    for metric in wanted:
        assert together[metric].score == pytest.approx(alone.scores[metric])
        assert (together[metric].gain, together[metric].error) == (0, 0)


def test_a_gain_has_the_error_of_paired_examples():
    task = Task("sst-2", "classification", labels=("0", "1"), metrics=("accuracy",))
    draw = random.Random(2)
    examples = [TextExample(str(i), "text", None, draw.randint(0, 1), "here") for i in range(30)]
    right = [[draw.random() < share for _ in examples] for share in (0.9, 0.6, 0.5)]
    said = [
        [Prediction(e.label if hit else 1 - e.label) for e, hit in zip(examples, hits, strict=True)] for hits in right
    ]
    found = compare(task, examples, said[1:], said[0])["accuracy"]
    gains = [100 * (a - (b + c) / 2) for a, b, c in zip(*right, strict=True)]
    assert found.score == pytest.approx(100 * sum(right[0]) / 30)
    assert found.gain == pytest.approx(sum(gains) / 30)
    assert found.error == pytest.approx(stats.sem(gains))


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
    # There is one ensemble: no seeds to compare it by, and none of its scores for other members.
    assert set(outcome.results.of("both", "sst2")) == {0}
    (verdict,) = outcome.verdicts
    assert verdict.evidence.startswith("one (seeds 0, 1) learned no more than token frequencies")  # in six steps
    verdict = judge(verdict.claim, "sst2", dataclasses.replace(outcome.results, facts={}))
    assert "both and its members have no spread" in verdict.evidence or "one ensemble" in verdict.evidence
    gain = outcome.results.gains["both"]["average"]
    members = outcome.results.of("one", "sst2").values()
    assert gain.value == pytest.approx(outcome.results.of("both", "sst2")[0] - sum(members) / 2)
    for options in (Options(seeds=3, tasks=tasks), Options(seeds=2, steps=5, tasks=tasks)):
        other_plan = make_plan(table, scale, corpus, tmp_path, options, vocabulary=300)
        assert other_plan.ensemble_file("both") != plan.ensemble_file("both")
        assert not judged(other_plan).results.of("both", "sst2")


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
    errors = {"squad1_f1": 3.0, "squad1_em": 5.0, "sst2": 3.0}
    assert average_error(errors, tuple(errors)) == pytest.approx((4**2 + 3**2) ** 0.5 / 2)
    assert average_error({}, ("sst2",)) is None
