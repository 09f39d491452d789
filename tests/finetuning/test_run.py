"""Whole runs: learning, choosing, stopping and going on."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys

import pytest
import torch
from interruptions import killed_at
from rich.console import Console
from toy_tasks import make_files, make_model, mixed_choices, tiny_config, write_rows

from litebert.config import write_yaml
from litebert.errors import ConfigError, DataError
from litebert.export.check import read_check_data
from litebert.finetuning import run as run_module
from litebert.finetuning.batches import Order
from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.model import make_model as build_model
from litebert.finetuning.results import read_predictions, read_scores
from litebert.finetuning.run import finetune
from litebert.model.config import load_config
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.pretraining.config import run_config
from litebert.report.finetuning_page import write_run_page
from litebert.tasks.task import load_task
from litebert.train import checkpoint
from litebert.train.device import bf16_problem, seed_everything
from litebert.train.folder import check_folder
from litebert.train.log import read_metrics
from litebert.train.processes import World
from litebert.train.trainer import PlainStep, Trainer, TrainingStoppedError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("files"), "classification", train=40, dev=20)


def lines(folder, kind):
    found = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == kind]
    return [{k: v for k, v in line.items() if k not in CLOCKS} for line in found]


CLOCKS = ("time", "seconds", "took", "tokens_per_second", "examples_per_second")


def assert_same_model(a, b):
    first, second = load_model(a).state_dict(), load_model(b).state_dict()
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_a_run_leaves_a_scored_model_and_its_account(toy_model, files, tmp_path):
    config = tiny_config(toy_model, files, steps=30, log={"evaluate_every": 10})
    result = finetune(config, tmp_path, quiet=True)
    assert result.completed
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"baselines.json", "best", "config.yaml", "metrics.jsonl", "predictions", "run.json", "scores.json"}
    best = {path.name for path in (tmp_path / "best").iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "task.json", "vocab.txt"} <= best
    assert load_task(tmp_path / "best").labels == ("neg", "pos")
    assert load_model(tmp_path / "best").config.labels == ("neg", "pos")
    scores = [line["accuracy"] for line in lines(tmp_path, "eval")]
    assert result.scores.value == max(scores)
    assert result.scores.step == 10 * (scores.index(max(scores)) + 1)
    low, high = result.scores.interval
    assert low <= result.scores.value <= high
    train = lines(tmp_path, "train")
    assert [line["step"] for line in train] == list(range(1, 31))
    assert train[-1]["loss"] < 0.5 * train[0]["loss"]
    raw = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["kind"] == "train"]
    assert all(0 < line["tokens_per_second"] < 1e8 for line in raw)  # also where an evaluation came in between
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["completed"]
    assert facts["kind"] == "finetune"
    predictions = [json.loads(line) for line in (tmp_path / "predictions" / "dev.jsonl").read_text().splitlines()]
    right = sum(line["prediction"] == line["gold"] for line in predictions) / len(predictions)
    assert right == pytest.approx(result.scores.value)


def test_multiple_choice_is_learnt_from_shuffled_questions(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "multiple-choice", train=60, dev=40)
    config = tiny_config(toy_model, files, "multiple-choice", steps=24, seed=1, log={"evaluate_every": 24})
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.value > 0.9
    losses = [line["loss"] for line in lines(tmp_path / "run", "train")]
    assert losses[0] == pytest.approx(math.log(3), abs=0.1)  # every question counts, and nothing is known of it yet
    assert sum(losses[-8:]) / 8 < 0.1


def test_questions_with_two_to_four_options_are_learnt_scored_and_answered(toy_model, tmp_path):
    files = {}
    for number, (split, count) in enumerate({"train": 60, "dev": 40}.items()):
        files[split] = str(write_rows(tmp_path / f"{split}.jsonl", mixed_choices(count, number)))
    config = tiny_config(toy_model, files, "multiple-choice", steps=24, seed=1, log={"evaluate_every": 24})
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.value > 0.9
    first, *_, ensemble = evaluate_task([result.model, result.model], data=files["dev"], device="cpu", threads=1)
    assert ensemble.evaluations[0].scores == first.evaluations[0].scores == result.scores.splits["dev"]
    said = read_predictions(tmp_path / "run" / "predictions" / "dev.jsonl")
    assert {len(line["options"]) for line in said} == {2, 3, 4}
    assert "Worst errors" in write_run_page(tmp_path / "run").read_text()
    predictor = Predictor(result.model, device="cpu", threads=1)
    for line in said[:6]:
        assert predictor.choose(line["passage"], line["question"], line["options"]).option == line["prediction"]
    exported = read_check_data(tmp_path / "dev.jsonl", result.model)
    assert exported.check(predictor.runtime).scores["accuracy"] == (result.scores.value, result.scores.value)


@pytest.mark.parametrize(
    ("kind", "seed", "at"),
    [
        ("classification", 0, 1),
        ("classification", 0, 3),
        ("multiple-choice", 0, 3),
        ("question-answering", 0, 3),
        ("question-answering", 1, 3),  # some without an answer
    ],
)
def test_a_killed_run_goes_on_to_the_same_scores_and_weights(toy_model, tmp_path, kind, seed, at):
    files = make_files(tmp_path / "files", kind, seed=seed)
    # Dropout everywhere: what is random must come again.
    config = tiny_config(toy_model, files, kind, dropout=0.1, log={"checkpoint_every": 2})
    whole = finetune(config, tmp_path / "whole", quiet=True)

    with killed_at(at):
        finetune(config, tmp_path / "killed", quiet=True)
    assert checkpoint.steps(tmp_path / "killed") == ([at - at % 2] if at > 1 else [])
    again = finetune(config, tmp_path / "killed", quiet=True)
    assert again.scores == whole.scores
    assert_same_model(tmp_path / "whole" / "best", tmp_path / "killed" / "best")
    assert lines(tmp_path / "whole", "train") == lines(tmp_path / "killed", "train")
    assert lines(tmp_path / "whole", "eval") == lines(tmp_path / "killed", "eval")


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_equal_one(toy_model, tmp_path, processes):
    """Under torchrun: uneven shares of a batch of 9, dev shared too, the same scores up to rounding."""
    files = make_files(tmp_path / "files", "question-answering", train=40, dev=21, seed=1)
    options = dict(batch=9, classifier_dropout=0.0, optim={"lr": 0.003}, steps=8)
    config = tiny_config(toy_model, files, "question-answering", **options)
    one = finetune(config, tmp_path / "one", quiet=True)
    (tmp_path / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "litebert", "finetune", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "two")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model: ") == 1  # one process talks
    two = read_scores(tmp_path / "two")
    assert two.step == one.scores.step
    for name, metric in one.scores.splits["dev"].items():
        assert two.splits["dev"][name].value == pytest.approx(metric.value, abs=1e-4), name
    for a, b in zip(lines(tmp_path / "one", "train"), lines(tmp_path / "two", "train"), strict=True):
        assert a.pop("loss") == pytest.approx(b.pop("loss"), abs=1e-5)
        assert a.pop("gradient_norm") == pytest.approx(b.pop("gradient_norm"), rel=1e-3)
        assert a == b
    first, second = (load_model(tmp_path / name / "best").state_dict() for name in ("one", "two"))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=2e-4, rtol=0, msg=name)
    facts = json.loads((tmp_path / "two" / "run.json").read_text())
    assert (facts["completed"], facts["hardware"]["processes"]) == (True, processes)


def test_each_process_needs_an_example(toy_model, files, tmp_path, monkeypatch):
    monkeypatch.setattr("litebert.train.trainer.world_from_environment", lambda: World(0, 3, 0, 3))
    with pytest.raises(ConfigError, match="batch: 2 examples for 3 processes"):
        finetune(tiny_config(toy_model, files, batch=2), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_rolls_back_and_leaves_the_batch_out(toy_model, files, tmp_path, monkeypatch):
    real = Trainer.forward_backward

    def poisoned(self, *stop):
        totals, stopping = real(self, *stop)
        return totals._replace(sums=(math.nan, 0.0)) if self.step == 5 else totals, stopping

    monkeypatch.setattr(Trainer, "forward_backward", poisoned)
    options = dict(guard={"on_nan": "rollback"}, steps=8, log={"checkpoint_every": 3, "evaluate_every": 1})
    result = finetune(tiny_config(toy_model, files, **options), tmp_path / "run", quiet=True)
    assert result.completed
    assert [line["step"] for line in lines(tmp_path / "run", "train")] == [1, 2, 3, 4, 5, 7, 8]
    assert [line["step"] for line in lines(tmp_path / "run", "eval")] == [1, 2, 3, 4, 5, 7, 8]  # none twice
    [event] = lines(tmp_path / "run", "event")
    assert event["message"] == "loss nan at step 5: back to the last checkpoint"
    options["log"] = {"checkpoint_every": 0}
    with pytest.raises(TrainingStoppedError, match=r"no checkpoint to roll back to yet\. Lower the learning rate"):
        finetune(tiny_config(toy_model, files, **options), tmp_path / "none", quiet=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_and_stop(toy_model, files, tmp_path, monkeypatch, number):
    config = tiny_config(toy_model, files)
    real = Trainer._set_learning_rate

    def signalled(self):
        real(self)
        if self.step == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Trainer, "_set_learning_rate", signalled)
    result = finetune(config, tmp_path / "run", quiet=True)
    monkeypatch.undo()
    assert (result.completed, result.step, result.signal) == (False, 3, number)
    assert checkpoint.steps(tmp_path / "run") == [3]
    resumed = finetune(config, tmp_path / "run", quiet=True)
    assert resumed.scores == finetune(config, tmp_path / "whole", quiet=True).scores


def test_a_run_of_another_kind_is_neither_resumed_nor_replaced(toy_model, files, tmp_path):
    """Their folders have the same files, and a finished fine-tuning run has no checkpoints left."""
    finetune(tiny_config(toy_model, files, steps=1), tmp_path / "labels", quiet=True)
    before = {path.name: path.read_bytes() for path in (tmp_path / "labels").iterdir() if path.is_file()}
    pretraining = run_config({"preset": "cpu/albert-tiny"})
    with pytest.raises(ConfigError, match=r"labels: already holds a run of another kind or version .*; choose another"):
        check_folder(tmp_path / "labels", pretraining, "auto")
    assert {path.name: path.read_bytes() for path in (tmp_path / "labels").iterdir() if path.is_file()} == before
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "metrics.jsonl").touch()
    (tmp_path / "text" / "config.yaml").write_text(write_yaml(pretraining))
    with pytest.raises(ConfigError, match=r"text: already holds a run of another kind or version .*; choose another"):
        finetune(tiny_config(toy_model, files, steps=1), tmp_path / "text", quiet=True)


@pytest.mark.parametrize(
    ("mark", "kind"),
    [("manifest.json", "a token store"), ("config.json", "a model"), ("adapter_config.json", "an adapter")],
)
def test_a_run_does_not_mix_with_another_folder(toy_model, files, tmp_path, mark, kind):
    (tmp_path / mark).write_text("{}")
    with pytest.raises(ConfigError, match=f"is {kind}; choose another folder for the run"):
        finetune(tiny_config(toy_model, files, steps=1), tmp_path, quiet=True)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("json")] == [mark]
    assert not (tmp_path / "best").exists()


def test_a_complete_run_is_left_alone_and_another_config_refused(toy_model, files, tmp_path, monkeypatch):
    config = tiny_config(toy_model, files)
    first = finetune(config, tmp_path, quiet=True)
    monkeypatch.setattr(run_module, "Finetuning", None)  # nothing may be trained again
    assert finetune(config, tmp_path, quiet=True).scores == first.scores
    with pytest.raises(ConfigError, match=r"another config:\n  optim.lr: 0.01 -> 0.02"):
        finetune(tiny_config(toy_model, files, optim={"lr": 0.02}), tmp_path, quiet=True)
    with pytest.raises(ConfigError, match="already holds a run"):
        finetune(config, tmp_path, resume="never", quiet=True)


def test_a_complete_run_with_damaged_files(toy_model, files, tmp_path):
    config = tiny_config(toy_model, files)
    done = finetune(config, tmp_path, quiet=True)
    (tmp_path / "config.yaml").write_text("[")
    shown = io.StringIO()
    again = finetune(config, tmp_path, console=Console(file=shown, soft_wrap=True))
    assert (again.scores, again.model, again.completed) == (done.scores, done.model, True)
    assert "config.yaml: not valid YAML" in shown.getvalue()
    assert "the run is complete, so its model is kept" in shown.getvalue()
    (tmp_path / "scores.json").write_text('{"metric": 5')
    with pytest.raises(DataError, match=r"scores\.json: damaged .*; restore it, or delete it to train this run again"):
        finetune(config, tmp_path, quiet=True)


def test_data_that_changed_is_noticed(toy_model, files, tmp_path):
    data = make_files(tmp_path / "files", "classification", train=40, dev=20)
    config = tiny_config(toy_model, data, log={"checkpoint_every": 2, "keep_checkpoints": True})
    finetune(config, tmp_path / "run", quiet=True)
    (tmp_path / "run" / "scores.json").unlink()
    make_files(tmp_path / "files", "classification", train=40, dev=20, seed=7)
    with pytest.raises(ConfigError, match="the run's data has changed"):
        finetune(config, tmp_path / "run", quiet=True)


def test_micro_batches_change_nothing(toy_model, files, tmp_path):
    options = dict(classifier_dropout=0.0, optim={"lr": 0.001})
    finetune(tiny_config(toy_model, files, **options), tmp_path / "one", quiet=True)
    finetune(tiny_config(toy_model, files, **options, micro_batch_tokens=20), tmp_path / "many", quiet=True)
    one, many = load_model(tmp_path / "one" / "best").state_dict(), load_model(tmp_path / "many" / "best").state_dict()
    for name, tensor in one.items():
        torch.testing.assert_close(many[name], tensor, atol=1e-5, rtol=1e-4)


def test_bf16_on_a_cpu_learns_the_same_where_the_cpu_can(toy_model, files, tmp_path):
    def learn(precision):
        device = {"device": "cpu", "precision": precision}
        config = tiny_config(toy_model, files, steps=10, dropout=0.0, device=device, log={"report_every": 1})
        finetune(config, tmp_path / precision, quiet=True)
        return [line["loss"] for line in lines(tmp_path / precision, "train")]

    if bf16_problem():
        with pytest.raises(ConfigError, match="bf16 crashes on this CPU"):
            learn("bf16")
    else:
        rounded, exact = learn("bf16"), learn("fp32")
        assert rounded == pytest.approx(exact, abs=0.02)
        assert rounded != exact


@pytest.mark.parametrize("precision", ["auto", "fp32"])
@pytest.mark.parametrize("able", [True, False])
@pytest.mark.parametrize("wide", [1, 512])
def test_a_wide_model_is_told_of_bf16_on_a_cpu(toy_model, files, tmp_path, monkeypatch, precision, able, wide):
    monkeypatch.setattr(run_module, "announces_bf16", lambda: able)
    monkeypatch.setattr(run_module, "WIDE", wide)
    shown = io.StringIO()
    config = tiny_config(toy_model, files, steps=1, device={"device": "cpu", "precision": precision})
    finetune(config, tmp_path, console=Console(file=shown, soft_wrap=True))
    assert ("device.precision=bf16" in shown.getvalue()) == (able and wide == 1 and precision == "auto")


def test_recomputed_layers_change_nothing(toy_model, files, tmp_path):
    for name, recompute in (("kept", False), ("made again", True)):
        device = {"recompute": recompute}
        finetune(tiny_config(toy_model, files, dropout=0.1, device=device, steps=3), tmp_path / name, quiet=True)
    one, other = (load_model(tmp_path / name / "best").state_dict() for name in ("kept", "made again"))
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, atol=1e-6, rtol=1e-5, msg=name)


def test_one_step_of_a_paper_preset_by_hand(files, tmp_path):
    """The mean loss of the batch, gradients clipped to 1, AdamW without bias correction; no decay for biases, norms."""
    folder = make_model(tmp_path / "model", initializer_range=1.0)  # large weights: gradients that have to be clipped
    config = tiny_config(
        folder,
        files,
        preset="v2/sst-2",
        classifier_dropout=0.0,
        optim={"lr": 0.01, "warmup_steps": 0},
        steps=1,
        log={"checkpoint_every": 1, "keep_checkpoints": True},
    )
    finetune(config, tmp_path / "run", quiet=True)
    saved = checkpoint.load(tmp_path / "run")

    seed_everything(config.seed)
    data = read_data(config, open_tokenizer(config.model), load_config(config.model))
    model, _ = build_model(config, data.task)
    losses = []
    for number in Order(len(data.train.features), config.batch, config.seed).step(0):
        sequence = data.train.features[number]
        ids, segments = (torch.from_numpy(x).long()[None] for x in (sequence.ids, sequence.segments))
        logits = model(ids, segment_ids=segments)[0]
        losses.append(logits.logsumexp(0) - logits[sequence.target])
    assert len(losses) == 8
    torch.stack(losses).mean().backward()
    norm = float(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
    assert norm > 1.5
    for name, parameter in model.named_parameters():
        m, v = saved.optimizer[f"{name}.m"], saved.optimizer[f"{name}.v"]
        torch.testing.assert_close(m, 0.1 * parameter.grad / norm, atol=1e-6, rtol=1e-4, msg=name)
        torch.testing.assert_close(v, 0.001 * (parameter.grad / norm) ** 2, atol=1e-9, rtol=1e-3, msg=name)
        update = m / (v.sqrt() + 1e-6)
        if not name.endswith("bias") and ".norm." not in name:
            update = update + 0.01 * parameter.detach()
        torch.testing.assert_close(
            saved.model[name], parameter.detach() - 0.01 * update, atol=1e-6, rtol=1e-5, msg=name
        )


def test_a_frozen_encoder_keeps_its_weights_and_the_head_learns(toy_model, files, tmp_path):
    finetune(tiny_config(toy_model, files, optim={"freeze": "encoder"}), tmp_path, quiet=True)
    before, after = load_model(toy_model).state_dict(), load_model(tmp_path / "best").state_dict()
    for name in after:
        if name.startswith("encoder."):
            assert torch.equal(before[name], after[name]), name
    assert after["classifier.weight"].abs().sum() > 0
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["learning_parameters"] == 2 * 16 + 2


def test_from_three_labels_to_a_number_the_head_is_new_and_the_encoder_stays(toy_model, files, tmp_path):
    """As MNLI's model begins STS-B."""
    first = finetune(tiny_config(toy_model, files), tmp_path / "first", quiet=True)
    scores = make_files(tmp_path / "scores", "regression")
    second = tiny_config(first.model, scores, "regression", optim={"lr": 1e-8}, steps=1)
    result = finetune(second, tmp_path / "second", quiet=True)
    before, after = load_model(first.model), load_model(result.model)
    assert after.classifier.weight.shape == (1, 16)
    torch.testing.assert_close(after.encoder.pooler.weight, before.encoder.pooler.weight, atol=1e-6, rtol=0)


def test_a_new_head_is_new_also_where_the_old_one_has_its_shape(toy_model, files, tmp_path):
    """As MNLI's model begins a task of three labels: the same classifier would mean other things."""
    first = finetune(tiny_config(toy_model, files), tmp_path / "first", quiet=True)
    second = tiny_config(first.model, files, optim={"lr": 1e-8}, steps=1, seed=1)  # seed 0 would draw the same again
    result = finetune(second, tmp_path / "second", quiet=True)
    before, after = load_model(first.model), load_model(result.model)
    assert (after.classifier.weight - before.classifier.weight).abs().max() > 0.1
    for name, tensor in before.encoder.state_dict().items():
        torch.testing.assert_close(after.encoder.state_dict()[name], tensor, atol=1e-6, rtol=0)


def test_dropouts_of_the_config_are_the_models(toy_model, files, tmp_path):
    task = load_task(finetune(tiny_config(toy_model, files, steps=1), tmp_path, quiet=True).model)
    for config, expected in (
        (tiny_config(toy_model, files, dropout=0.2, classifier_dropout=0.3), (0.2, 0.2, 0.3)),
        (tiny_config(make_model(tmp_path / "model", hidden_dropout_prob=0.4), files), (0.4, 0.0, 0.1)),
    ):
        model = build_model(config, task)[0]
        found = model.config
        assert (
            found.hidden_dropout_prob,
            found.attention_probs_dropout_prob,
            found.classifier_dropout_prob,
        ) == expected
        assert model.dropout.p == expected[2]


def test_a_head_can_be_kept_where_the_labels_agree(toy_model, files, tmp_path):
    first = finetune(tiny_config(toy_model, files), tmp_path / "first", quiet=True)
    config = tiny_config(first.model, files, head="keep", optim={"lr": 1e-8}, steps=1)
    result = finetune(config, tmp_path / "second", quiet=True)
    kept, before = load_model(result.model).classifier.weight, load_model(first.model).classifier.weight
    torch.testing.assert_close(kept, before, atol=1e-6, rtol=0)
    tags = make_files(tmp_path / "tags", "token-classification")
    with pytest.raises(ConfigError, match="head: keep"):
        finetune(tiny_config(first.model, tags, "token-classification", head="keep"), tmp_path / "no", quiet=True)


def test_early_stopping(toy_model, files, tmp_path):
    config = tiny_config(toy_model, files, optim={"lr": 1e-9}, steps=20, patience=2)
    result = finetune(config, tmp_path, quiet=True)
    assert result.completed
    assert result.step == 6  # the first evaluation is the best, two more are not better
    assert result.scores.step == 2


def test_a_loss_that_is_not_finite_is_left_out_and_ends_the_run_at_last(toy_model, files, tmp_path, monkeypatch):
    real = PlainStep.__call__

    def broken(self, inputs, counts):
        return real(self, inputs, counts) * math.nan

    monkeypatch.setattr(PlainStep, "__call__", broken)
    config = tiny_config(toy_model, files, guard={"max_skips": 2}, steps=10)
    with pytest.raises(TrainingStoppedError, match="loss nan at step 2, after 2 skipped steps"):
        finetune(config, tmp_path, quiet=True)
    messages = [line["message"] for line in lines(tmp_path, "event")]
    assert messages[0] == "loss nan at step 0: step skipped"


def test_without_dev_the_last_weights_are_kept(toy_model, files, tmp_path):
    result = finetune(tiny_config(toy_model, {"train": files["train"]}), tmp_path, quiet=True)
    assert result.scores.value is None
    assert result.scores.step == 6
    assert result.model.is_dir()


def test_the_metric_that_decides_can_be_chosen(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "regression")
    config = tiny_config(toy_model, files, "regression", metric="rmse", steps=10)
    result = finetune(config, tmp_path / "run", quiet=True)
    errors = [line["rmse"] for line in lines(tmp_path / "run", "eval")]
    assert result.scores.metric == "rmse"
    assert result.scores.value == pytest.approx(min(errors))  # less is better
    with pytest.raises(ConfigError, match="metric: regression has no 'accuracy'"):
        finetune(tiny_config(toy_model, files, "regression", metric="accuracy"), tmp_path / "no", quiet=True)


def test_mistakes_leave_no_folder_behind(toy_model, files, tmp_path):
    with pytest.raises(DataError):
        finetune(tiny_config(toy_model, {"train": "nowhere.csv"}), tmp_path / "run", quiet=True)
    with pytest.raises(DataError, match="labels come from a training file"):
        finetune(tiny_config(toy_model, {"dev": files["dev"]}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_another_seed_is_another_run(toy_model, files, tmp_path):
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        finetune(tiny_config(toy_model, files, seed=seed), tmp_path / name, quiet=True)
    assert_same_model(tmp_path / "a" / "best", tmp_path / "c" / "best")
    a, b = (load_model(tmp_path / name / "best").classifier.weight for name in "ab")
    assert not torch.equal(a, b)


def test_a_pooler_that_no_file_brought_learns_though_the_encoder_is_frozen(files, tmp_path):
    from litebert.model.heads import MaskedLMModel
    from litebert.model.hub import save_model

    folder = make_model(tmp_path / "model")
    save_model(MaskedLMModel(load_model(folder).config), folder)
    finetune(tiny_config(folder, files, optim={"freeze": "encoder"}, steps=2), tmp_path / "run", quiet=True)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["learning_parameters"] == (2 * 16 + 2) + (16 * 16 + 16)
