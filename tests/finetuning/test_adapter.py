"""Runs that train an adapter: small, equal to their merged model, resumable, opened by PEFT."""

from __future__ import annotations

import peft
import pytest
import torch
import transformers
from eager_graphs import stand_in
from safetensors.torch import load_file
from toy_tasks import KINDS, finetune_in_two, make_files, make_model, tiny_config

from litebert.errors import CheckpointError, ConfigError
from litebert.finetuning import run as run_module
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.run import Finetuning, finetune
from litebert.model.fast.layers import FastLayers
from litebert.model.hub import load_model
from litebert.predict.load import load_adapted, merge_folder
from litebert.predict.predictor import Predictor
from litebert.train.log import read_metrics

ADAPTER = {"adapter": {"rank": 2}, "optim": {"lr": 0.02}}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("files"), "classification", train=40, dev=20)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_an_adapter(toy_model, tmp_path, kind):
    files = make_files(tmp_path / "files", kind, train=30, dev=15)
    config = tiny_config(toy_model, files, task=kind, steps=20, **ADAPTER)
    result = finetune(config, tmp_path / "run", quiet=True)
    adapter = tmp_path / "run" / "adapter"
    assert {"adapter_config.json", "adapter_model.safetensors", "task.json", "README.md"} == {
        path.name for path in adapter.iterdir()
    }
    merged, task, base = load_adapted(adapter)
    assert (task.kind, base) == (kind, toy_model)
    best = load_model(tmp_path / "run" / "best").state_dict()
    start = load_model(toy_model).state_dict()
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, best[name], atol=1e-6, rtol=1e-5, msg=name)
    changed = {name for name in best if name.startswith("encoder.") and not torch.equal(best[name], start[name])}
    assert changed
    assert all(name.endswith((".weight",)) and "embeddings" not in name and "norm" not in name for name in changed)
    scored = evaluate_task([str(tmp_path / "run" / "best")], data=files["dev"])
    metric = result.scores.metric
    assert scored[0].evaluations[0].scores[metric].value == pytest.approx(result.scores.value, abs=1e-3)


def test_it_learns_what_a_head_alone_does_not(toy_model, files, tmp_path):
    common = dict(steps=120, dropout=0.0, classifier_dropout=0.0)
    finetune(tiny_config(toy_model, files, **common, **ADAPTER), tmp_path / "adapter", quiet=True)
    frozen = {"lr": 0.02, "freeze": "encoder"}
    finetune(tiny_config(toy_model, files, **common, optim=frozen), tmp_path / "head", quiet=True)
    losses = {}
    for run in ("adapter", "head"):
        train = [line["loss"] for line in read_metrics(tmp_path / run / "metrics.jsonl") if line["kind"] == "train"]
        losses[run] = sum(train[-10:]) / 10
    assert losses["adapter"] < 0.5 * losses["head"]


def test_a_killed_run_goes_on_bit_for_bit(toy_model, files, tmp_path):
    config = tiny_config(toy_model, files, steps=12, **ADAPTER)
    finetune(config, tmp_path / "whole", quiet=True)
    finetune_in_two(config, tmp_path / "cut", 5)
    whole, again = (load_file(tmp_path / run / "adapter" / "adapter_model.safetensors") for run in ("whole", "cut"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


@pytest.mark.parametrize("per_application", [False, True])
def test_fast_layers_and_recorded_steps_learn_the_same(toy_model, files, tmp_path, monkeypatch, per_application):
    """As on a GPU: the same run through the layers of model/fast, its steps replayed from a graph."""
    config = tiny_config(
        toy_model, files, dropout=0.0, classifier_dropout=0.0, adapter={"rank": 2, "per_application": per_application}
    )
    finetune(config, tmp_path / "plain", quiet=True)
    graphs = stand_in(monkeypatch)
    monkeypatch.setattr(Finetuning, "_records", lambda self: True)

    def speed_up(model, device):
        model.encoder.fast_layers = FastLayers(model.encoder, torch.float32)

    monkeypatch.setattr(run_module, "speed_up", speed_up)
    finetune(config, tmp_path / "fast", quiet=True)
    assert graphs
    assert all(graph.replays for graph in graphs)
    plain, fast = (load_file(tmp_path / run / "adapter" / "adapter_model.safetensors") for run in ("plain", "fast"))
    for name, tensor in plain.items():
        torch.testing.assert_close(fast[name], tensor, atol=1e-5, rtol=1e-3, msg=name)
        assert tensor.any(), name


def test_an_adapter_goes_on_from_another(toy_model, files, tmp_path):
    common = dict(steps=20, dropout=0.0, classifier_dropout=0.0)
    finetune(tiny_config(toy_model, files, **common, **ADAPTER), tmp_path / "first", quiet=True)
    start = str(tmp_path / "first" / "adapter")
    more = {"adapter": {"rank": 2, "start": start}}
    still = tiny_config(toy_model, files, **{**common, "steps": 1}, **more, optim={"lr": 1e-12})
    finetune(still, tmp_path / "still", quiet=True)
    first, same = (load_file(tmp_path / run / "adapter" / "adapter_model.safetensors") for run in ("first", "still"))
    for name, tensor in first.items():
        torch.testing.assert_close(same[name], tensor, msg=name)
    finetune(tiny_config(toy_model, files, **common, **more, optim={"lr": 0.02}), tmp_path / "second", quiet=True)
    losses = {
        run: [line["loss"] for line in read_metrics(tmp_path / run / "metrics.jsonl") if line["kind"] == "train"]
        for run in ("first", "second")
    }
    assert losses["second"][0] == pytest.approx(losses["first"][-1], abs=0.3)
    assert losses["second"][0] < losses["first"][0]
    for change, error, message in (
        ({"rank": 4}, ConfigError, "has rank 2 and alpha 4, the config 4 and 8; they must be equal"),
        ({"per_application": True}, ConfigError, "has per_application: false"),
        ({"rslora": True}, ConfigError, "has rslora: false"),
        ({"start": str(toy_model)}, CheckpointError, "not an adapter folder .*; it is a whole model"),
    ):
        wrong = tiny_config(toy_model, files, **common, adapter={"rank": 2, "start": start, **change})
        with pytest.raises(error, match=message):
            finetune(wrong, tmp_path / "wrong", quiet=True)


def test_predictor_peft_and_merge_agree(cli, toy_model, files, tmp_path):
    finetune(tiny_config(toy_model, files, steps=20, **ADAPTER), tmp_path / "run", quiet=True)
    adapter, text = tmp_path / "run" / "adapter", "the film was great"
    expected = Predictor(tmp_path / "run" / "best", runtime="torch", device="cpu").classify(text).probabilities
    assert Predictor(adapter, device="cpu").classify(text).probabilities == pytest.approx(expected, abs=1e-5)
    for wrong in (adapter.parent, adapter.parent / "best"):
        cli("adapter", "merge", wrong, "--out", tmp_path / "merged").assert_refused(
            f"{wrong}: not an adapter folder (no adapter_config.json); the adapter of this run is {adapter}"
        )
    cli("adapter", "merge", toy_model, "--out", tmp_path / "merged").assert_refused("; it is a whole model")
    shown = cli("adapter", "merge", adapter, "--out", tmp_path / "merged")
    assert shown.code == 0, shown
    merged = Predictor(tmp_path / "merged", device="cpu")
    assert merged.classify(text).probabilities == pytest.approx(expected, abs=1e-5)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(toy_model, num_labels=2)
    opened = peft.PeftModel.from_pretrained(base, adapter).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(toy_model)
    with torch.no_grad():
        found = opened(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].tolist()
    assert found == pytest.approx([expected["neg"], expected["pos"]], abs=1e-5)


def test_a_study_keeps_the_adapter_of_its_best_run(cli, toy_model, files, tmp_path):
    options = ("--adapter", 2, "--seeds", 2, "--set", "steps=2", "--device", "cpu", "--out", tmp_path / "study")
    done = cli("finetune", "--task", "classification", "--train", files["train"], "--model", toy_model, *options)
    assert f"adapter: {tmp_path / 'study' / 'adapter'}" in done.out, done
    texts = ["the film was great", "it is poor"]
    found = [Predictor(tmp_path / "study" / name, device="cpu").classify(texts) for name in ("best", "adapter")]
    for ours, merged in zip(*found, strict=True):
        assert ours.probabilities == pytest.approx(merged.probabilities, abs=1e-5)


def test_by_name_in_python(toy_model, files, tmp_path):
    given = {"task": "classification", "train": files["train"], "model": toy_model, "settings": ["steps=2"]}
    result = finetune(**given, adapter=2, few=True, out=tmp_path / "few", device="cpu", quiet=True)
    assert (result.folder / "adapter" / "adapter_config.json").is_file()
    for more, message in (
        ({"adapter": 0}, "rank: must be >= 1, got 0"),
        ({"few": True, "head_only": True}, "few: trains the encoder"),
        ({"pairs": "adjacent"}, "pairs: are for the task similarity"),
    ):
        with pytest.raises(ConfigError, match=message):
            finetune(**given, **more, out=tmp_path / "no", device="cpu", quiet=True)


def test_a_base_named_by_a_relative_path_is_found_from_anywhere(toy_model, files, tmp_path, monkeypatch):
    monkeypatch.chdir(toy_model.parent)
    finetune(tiny_config(toy_model.name, files, steps=2, **ADAPTER), tmp_path / "run", quiet=True)
    monkeypatch.chdir(tmp_path)
    assert Predictor("run/adapter", device="cpu").classify("the film was great").label in ("neg", "pos")


def test_each_application_has_its_own(toy_model, files, tmp_path):
    settings = {"adapter": {"rank": 4, "per_application": True}, "optim": {"lr": 0.02}}
    finetune(tiny_config(toy_model, files, steps=20, **settings), tmp_path / "run", quiet=True)
    text = "the film was great"
    opened = [Predictor(tmp_path / "run" / folder, device="cpu") for folder in ("best", "adapter")]
    answers = [predictor.classify(text).probabilities for predictor in opened]
    assert answers[0] == pytest.approx(answers[1], abs=1e-5)
    weights = load_file(tmp_path / "run" / "best" / "model.safetensors")
    first, second = (f"albert.encoder.albert_layer_groups.{n}.albert_layers.0.attention.query.weight" for n in (0, 1))
    assert not torch.equal(weights[first], weights[second])
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "best").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(toy_model)
    with torch.no_grad():
        found = base(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].tolist()
    assert found == pytest.approx([answers[0]["neg"], answers[0]["pos"]], abs=1e-5)


def test_mistakes_are_named(cli, toy_model, files, tmp_path):
    with pytest.raises(ConfigError, match="rank: must be >= 1, got 0"):
        tiny_config(toy_model, files, adapter={"rank": 0})
    with pytest.raises(ConfigError, match="adapter: freezes the encoder itself"):
        tiny_config(toy_model, files, adapter={"rank": 2}, optim={"freeze": "embeddings"})
    finetune(tiny_config(toy_model, files, steps=2, **ADAPTER), tmp_path / "run", quiet=True)
    other = make_model(tmp_path / "other", hidden_size=32)
    with pytest.raises(CheckpointError, match="an adapter of another base model: it was trained on other weights"):
        merge_folder(tmp_path / "run" / "adapter", tmp_path / "out", base=str(other))
    with pytest.raises(CheckpointError, match="not empty; name another folder"):
        merge_folder(tmp_path / "run" / "adapter", toy_model)
    settings = tmp_path / "run" / "adapter" / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(toy_model), str(tmp_path / "moved")))
    with pytest.raises(
        CheckpointError, match=r"its base model is not found: .*moved.* correct base_model_name_or_path"
    ):
        Predictor(tmp_path / "run" / "adapter")
    (tmp_path / "run" / "adapter" / "task.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no task\.json"):
        Predictor(tmp_path / "run" / "adapter")


def test_training_may_start_from_an_adapter_of_earlier_weights(capsys, toy_model, files, tmp_path):
    finetune(tiny_config(toy_model, files, steps=60, **ADAPTER), tmp_path / "run", quiet=True)
    later = make_model(tmp_path / "later", seed=1)
    start = ADAPTER | {"adapter": {"rank": 2, "start": str(tmp_path / "run" / "adapter")}}
    finetune(tiny_config(later, files, steps=2, **start), tmp_path / "moved")
    assert "was trained on other weights, so it is only a beginning here" in capsys.readouterr().out.replace("\n", " ")
    begun, moved = (load_file(tmp_path / run / "adapter" / "adapter_model.safetensors") for run in ("run", "moved"))
    assert begun.keys() == moved.keys()
    name = next(name for name in begun if "lora_A" in name)
    assert torch.cosine_similarity(begun[name].flatten(), moved[name].flatten(), dim=0) > 0.9
    assert load_adapted(tmp_path / "moved" / "adapter")[2] == later  # and it belongs there
    finetune(tiny_config(toy_model, files, steps=2, **start), tmp_path / "same")
    assert "other weights" not in capsys.readouterr().out
    other = make_model(tmp_path / "other", hidden_size=32)
    with pytest.raises(CheckpointError, match="an adapter for another base model: "):
        finetune(tiny_config(other, files, steps=2, **start), tmp_path / "refused", quiet=True)


def test_an_adapter_takes_larger_steps_unless_told():
    from litebert.finetuning.config import finetune_config

    assert finetune_config({"adapter": {"rank": 8}}).optim.lr == 5e-4
    assert finetune_config({"adapter": {"rank": 8}, "optim": {"lr": 1e-4}}).optim.lr == 1e-4
    assert finetune_config({}).optim.lr == 2e-5
