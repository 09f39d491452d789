"""Fine-tuning for several depths: losses by hand, learning, stopping and going on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from eager_graphs import stand_in
from interruptions import killed_at
from toy_tasks import KINDS, make_files, make_model, tiny_config, write_rows

from litebert.errors import ConfigError, DataError
from litebert.export.onnx_file import export_onnx
from litebert.finetuning import run
from litebert.finetuning.calibrate import calibrate
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.model import batch_loss
from litebert.finetuning.model import make_model as build_model
from litebert.finetuning.run import Finetuning, finetune
from litebert.model.fast.layers import FastLayers
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.report.finetuning_page import write_run_page
from litebert.tasks.metrics import show_value
from litebert.tasks.task import load_task, save_task
from litebert.train import checkpoint
from litebert.train.log import read_metrics


@pytest.fixture(scope="module")
def deep_model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("deep") / "model", num_hidden_layers=3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_sum_of_the_losses_at_each_depth(deep_model, tmp_path, monkeypatch, kind):
    seed = 1 if kind == "question-answering" else 0  # odd: some questions without an answer
    files = make_files(tmp_path / "files", kind, seed=seed)
    config = tiny_config(deep_model, files, kind, exits=[1, 3], steps=2, classifier_dropout=0.0)
    found = []

    def by_hand(model, kind, inputs, targets, max_length, num_rows, shares):
        whole, right = batch_loss(model, kind, inputs, targets, max_length, num_rows, shares)
        assert shares == {1: 0.25, 3: 0.75}
        parts = []
        for depth in shares:
            model.set_depth(depth)  # a pass of its own
            parts.append(batch_loss(model, kind, inputs, targets, max_length, num_rows))
            model.set_depth(None)
        expected = 0.25 * parts[0][0] + 0.75 * parts[1][0]
        found.append((whole.item(), expected.item()))
        assert torch.equal(right, parts[1][1])
        return whole, right

    monkeypatch.setattr("litebert.finetuning.run.batch_loss", by_hand)
    finetune(config, tmp_path / "run", quiet=True)
    assert len(found) >= 2
    for whole, expected in found:
        assert whole == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("how", ["sum", "random"])
def test_every_exit_learns_and_a_killed_run_goes_on_to_the_same_weights(deep_model, tmp_path, how):
    files = make_files(tmp_path / "files", "classification", train=40, dev=20)
    changes = {"exits": [1, 2, 3], "exit_loss": how, "dropout": 0.1, "steps": 12, "log": {"checkpoint_every": 5}}
    config = tiny_config(deep_model, files, **changes)
    whole = finetune(config, tmp_path / "whole", quiet=True)
    trained, fresh = load_model(whole.model), build_model(config, load_task(whole.model))[0]
    assert trained.config.exits == (1, 2, 3)
    assert list(trained.exits) == ["1", "2"]
    for depth in trained.exits:
        assert not torch.equal(trained.exits[depth].weight, fresh.exits[depth].weight)

    with killed_at(8):
        finetune(config, tmp_path / "killed", quiet=True)
    assert checkpoint.steps(tmp_path / "killed") == [5]
    again = finetune(config, tmp_path / "killed", quiet=True)
    assert again.scores == whole.scores
    first, second = load_model(whole.model).state_dict(), load_model(again.model).state_dict()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_random_depths_are_scored_at_full_depth(deep_model, tmp_path, monkeypatch):
    files = make_files(tmp_path / "files", "classification")
    depths = {"train": set(), "dev": set()}

    def watch(self, *arguments):
        result = real(self, *arguments)
        depths["train"].add(self.model.depth)
        return result

    def score(model, *arguments):
        depths["dev"].add(model.depth)
        return predict(model, *arguments)

    real, predict = Finetuning.loss, run.predict_split
    monkeypatch.setattr(Finetuning, "loss", watch)
    monkeypatch.setattr(run, "predict_split", score)
    finetune(
        tiny_config(deep_model, files, exits=[1, 2, 3], exit_loss="random", steps=12), tmp_path / "run", quiet=True
    )
    assert depths["train"] == {1, 2, 3}
    assert depths["dev"] == {None}


@pytest.mark.parametrize("kind", [*KINDS, "answers or none"])
def test_a_run_through_the_fast_layers_is_the_run_through_the_plain_ones(deep_model, tmp_path, monkeypatch, kind):
    """As on a GPU: one pass for all exits, its steps replayed from a graph."""
    kind, seed = ("question-answering", 1) if kind == "answers or none" else (kind, 0)
    files = make_files(tmp_path / "files", kind, seed=seed)
    config = tiny_config(deep_model, files, kind, exits=[1, 2, 3], dropout=0.0, classifier_dropout=0.0)
    finetune(config, tmp_path / "plain", quiet=True)
    passes = []

    class Watched(FastLayers):
        def __call__(self, hidden, starts, max_length, positions, stops):
            if torch.is_grad_enabled():
                passes.append((stops, positions is not None))
            return super().__call__(hidden, starts, max_length, positions, stops)

    def speed_up(model, device):
        model.encoder.fast_layers = Watched(model.encoder, torch.float32)

    graphs = stand_in(monkeypatch)
    monkeypatch.setattr(Finetuning, "_records", lambda self: True)
    monkeypatch.setattr(run, "speed_up", speed_up)
    finetune(config, tmp_path / "fast", quiet=True)
    assert graphs
    assert all(graph.replays for graph in graphs)
    few = kind not in ("token-classification", "question-answering")  # only each [CLS] is asked for
    assert {(tuple(stops), asked) for stops, asked in passes} == {((1, 2, 3), few)}
    plain, fast = (
        [line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl") if line["kind"] == "train"]
        for name in ("plain", "fast")
    )
    assert len(plain) == 6
    assert fast == pytest.approx(plain, rel=1e-4)


def test_exits_may_be_kept_and_go_on_learning(deep_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    first = finetune(tiny_config(deep_model, files, exits=[1, 3], steps=1), tmp_path / "first", quiet=True)
    kept = tiny_config(first.model, files, exits=[1, 3], head="keep", steps=1)
    model, new = build_model(kept, load_task(first.model))
    assert new == []
    assert torch.equal(model.exits["1"].weight, load_model(first.model).exits["1"].weight)
    with pytest.raises(ConfigError, match="has exits at 1, 3, the config at 2, 3"):
        build_model(tiny_config(first.model, files, exits=[2, 3], head="keep"), load_task(first.model))
    without, _ = build_model(tiny_config(first.model, files), load_task(first.model))
    assert without.config.exits == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exits": [1, 2]}, "the last must be the full depth of the model, 3"),
        ({"exits": [1, 3], "exit_weights": [1.0]}, "1 for 2 exits"),
        ({"exits": [1, 3], "head_only": True}, "leave out head_only"),
        ({"exits": [1, 3], "adapter": {"rank": 2}}, "leave out head_only, few and adapter"),
    ],
)
def test_mistakes_leave_no_folder_behind(deep_model, tmp_path, changes, message):
    files = make_files(tmp_path / "files", "classification")
    with pytest.raises(ConfigError, match=message):
        finetune(tiny_config(deep_model, files, **changes), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_every_exit_is_scored_and_timed(deep_model, tmp_path, cli):
    files = make_files(tmp_path / "files", "classification", train=40, dev=20)
    result = finetune(tiny_config(deep_model, files, exits=[1, 2, 3], steps=20), tmp_path / "run", quiet=True)
    scored = evaluate_task([result.model], data=files["dev"], device="cpu", threads=1, depth="all")
    assert [one.depth for one in scored] == [1, 2, 3]
    assert all(one.seconds > 0 for one in scored)
    predictor = Predictor(result.model, device="cpu", threads=1)
    for one in scored:
        (evaluation,) = one.evaluations
        texts, gold = zip(*((e.a, e.label) for e in evaluation.split.examples), strict=True)
        said = [("neg", "pos").index(each.label) for each in predictor.classify(list(texts), depth=one.depth)]
        assert said == [prediction.value for prediction in evaluation.predictions]
        right = sum(a == b for a, b in zip(said, gold, strict=True)) / len(gold)
        assert evaluation.scores["accuracy"].value == pytest.approx(right)
    assert scored[-1].evaluations[0].scores["accuracy"] == result.scores.splits["dev"]["accuracy"]

    arguments = ("evaluate", result.model, "--data", files["dev"], "--device", "cpu", "--threads", 1)
    table = cli(*arguments, "--depth", "all")
    assert table.code == 0, table
    rows = [line.split(" accuracy ")[0].split() for line in table.out.splitlines() if " accuracy " in line]
    assert [row[-2] for row in rows] == ["1", "2", "3"]
    (row,) = json.loads(cli(*arguments, "--depth", 2, "--json").out)
    assert row["depth"] == 2
    assert row["scores"]["accuracy"]["value"] == scored[1].evaluations[0].scores["accuracy"].value
    for wrong, message in (("4", "must be between 1 and 3"), ("x", "a number of layers, auto or all")):
        refused = cli(*arguments, "--depth", wrong)
        assert refused.code == 2
        assert message in refused.err


def test_the_curve_is_in_the_report(deep_model, tmp_path, cli):
    """Every exit and the rule, with scores, layers and time."""
    files = make_files(tmp_path / "files", "classification", train=40, dev=20)
    result = finetune(tiny_config(deep_model, files, exits=[1, 2, 3], steps=20), tmp_path / "run", quiet=True)
    asked = {"data": files["dev"], "device": "cpu", "threads": 1}
    with pytest.raises(ConfigError, match="has no rule for auto yet"):
        evaluate_task([result.model], depth="auto", **asked)
    found = calibrate(result.model, files["dev"], speed_up=1.2, rule="confidence", device="cpu", threads=1)
    *exits, auto = evaluate_task([result.model], depth="all", **asked)
    assert [(one.depth, one.mean_depth) for one in exits] == [(1, 1), (2, 2), (3, 3)]
    assert auto.depth == "auto"
    assert auto.mean_depth == pytest.approx(found.chosen.mean_depth)
    assert auto.evaluations[0].scores["accuracy"].value == pytest.approx(found.chosen.score)
    page = write_run_page(tmp_path / "run").read_text(encoding="utf-8")
    assert 'class="chart depths"' in page
    for one in (*exits, auto):
        shown = show_value(one.evaluations[0].scores["accuracy"].value, "accuracy")
        row = f'<td>{one.depth}</td><td class="number">{one.mean_depth:.2f}</td><td class="number">{shown}</td>'
        assert row in page
    table = cli("evaluate", result.model, "--data", files["dev"], "--device", "cpu", "--depth", "all")
    assert f"auto {auto.mean_depth:.2f}" in table.out
    name, head, *rows = table.out.splitlines()
    assert name == str(result.model)  # above the table: however long, it leaves the columns their room
    assert head.split()[:4] == ["split", "depth", "ms", "each"]
    assert len(rows) == 8  # four depths, two metrics
    (result.model / "depths.json").write_text("{}")
    with pytest.raises(DataError, match="not a curve of depths"):
        write_run_page(tmp_path / "run")


def test_similarity_has_a_curve_over_all_layers(deep_model, tmp_path):
    """Vectors can be had at every depth of any model."""
    rows = [
        {"text": a, "pair": b, "score": s} for a, b, s in (("good film", "fine story", 4), ("a", "bad plot", 1))
    ] * 4
    rows[3]["score"] = 2
    file = write_rows(tmp_path / "pairs.jsonl", rows)
    config = tiny_config(deep_model, {"train": str(file), "dev": str(file)}, "similarity", steps=2)
    model = finetune(config, tmp_path / "run", quiet=True).model
    scored = evaluate_task([model], data=file, device="cpu", threads=1, depth="all")
    assert [one.depth for one in scored] == [1, 2, 3]
    predictor = Predictor(model, device="cpu", threads=1)
    for one in scored:
        said = predictor.similarity([row["text"] for row in rows], [row["pair"] for row in rows], depth=one.depth)
        assert [p.value for p in one.evaluations[0].predictions] == pytest.approx([s.score for s in said], abs=1e-5)
    plain = evaluate_task([model], data=file, device="cpu", threads=1)[0].evaluations[0]
    assert plain.scores["spearman"].value == pytest.approx(scored[-1].evaluations[0].scores["spearman"].value)
    with pytest.raises(ConfigError, match="no confidence to stop by"):
        calibrate(model, file, max_loss=1, device="cpu", threads=1)


def test_a_model_without_exits_has_one_depth(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    result = finetune(tiny_config(toy_model, files, steps=1), tmp_path / "run", quiet=True)
    for depth in ("all", "auto"):
        with pytest.raises(ConfigError, match=r"has no exits; fine-tune it with some, such as exits: \[1, 2\]"):
            evaluate_task([result.model], data=files["dev"], device="cpu", threads=1, depth=depth)
    with pytest.raises(ConfigError, match="one model at a time"):
        evaluate_task([result.model] * 2, data=files["dev"], device="cpu", threads=1, depth=1)


def test_no_answer_has_a_threshold_for_each_exit(deep_model, tmp_path, cli):
    """Tuned on dev like that of full depth; evaluation, prediction, calibration and an export read it."""
    files = make_files(tmp_path / "files", "question-answering", train=40, dev=30, seed=1)
    config = tiny_config(deep_model, files, "question-answering", exits=[1, 2, 3], steps=20)
    model = finetune(config, tmp_path / "run", quiet=True).model
    task = load_task(model)
    limits = [task.threshold_at(depth) for depth in (1, 2, 3)]
    assert list(task.exit_thresholds) == [1, 2]
    assert len(set(limits)) == 3
    asked = {"data": files["dev"], "device": "cpu", "threads": 1}
    for limit, one in zip(limits, evaluate_task([model], depth="all", **asked), strict=True):
        (evaluation,) = one.evaluations
        assert evaluation.thresholds["tuned"] == limit
        assert evaluation.thresholds["best"] == pytest.approx(limit, abs=1e-4)
        # It lies on the score of a question, which is another to the last digit here.
        assert evaluation.scores["tuned_f1"].value >= evaluation.scores["best_f1"].value - 1.01 / 30

    # At the first exit no question has an answer now, at the second every one.
    save_task(replace(task, null_threshold=-1000.0, exit_thresholds={1: -1000.0, 2: 1000.0}), model)
    first, second, _ = evaluate_task([model], depth="all", **asked)
    examples = first.evaluations[0].split.examples
    assert {each.value for each in first.evaluations[0].predictions} == {""}
    assert "" not in {each.value for each in second.evaluations[0].predictions}
    calibrate(model, files["dev"], speed_up=1.2, rule="patience", device="cpu", threads=1)  # at 2 at the earliest
    export_onnx(model, tmp_path / "onnx")
    (auto,) = evaluate_task([model], depth="auto", **asked)
    both = {each.value == "" for each in auto.evaluations[0].predictions}
    for folder in (model, tmp_path / "onnx"):
        predictor = Predictor(folder, device="cpu", threads=1)
        questions, contexts = [each.question for each in examples], [each.context for each in examples]
        empty = {depth: predictor.answer(questions, contexts, depth=depth) for depth in (1, 2, 3, None, "auto")}
        for depth, says_nothing in ((1, True), (2, False), (3, True), (None, True)):
            assert {each.text == "" for each in empty[depth]} == {says_nothing}, (folder, depth)
        assert [each.text == "" for each in empty["auto"]] == [each.depth != 2 for each in empty["auto"]]
        assert {each.text == "" for each in empty["auto"]} == both
        assert 2 in {each.depth for each in empty["auto"]}
        assert {each.text == "" for each in predictor.answer(questions, contexts, threshold=1000.0, depth=1)} == {False}
    shown = cli("evaluate", model, "--data", files["dev"], "--device", "cpu", "--threads", 1, "--depth", "auto")
    assert "tuned_ uses -1000, -1000 at depth 1, 1000 at depth 2, saved with the model" in shown.out

    # A folder from before has one number, which counts at every exit.
    file = model / "task.json"
    old = {name: value for name, value in json.loads(file.read_text()).items() if name != "exit_thresholds"}
    file.write_text(json.dumps(old))
    for depth in (1, 2, 3):
        (one,) = evaluate_task([model], depth=depth, **asked)
        assert {each.value for each in one.evaluations[0].predictions} == {""}
        assert one.evaluations[0].thresholds["tuned"] == -1000
