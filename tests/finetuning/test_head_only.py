"""A linear head on frozen features: fitted, saved and asked like any other model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from toy_tasks import KINDS as TASK_KINDS
from toy_tasks import make_files, tiny_config

from litebert.errors import ConfigError
from litebert.export.onnx_file import export_onnx
from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.head_only import KINDS, fit_head, read_features
from litebert.finetuning.model import make_model
from litebert.finetuning.run import finetune
from litebert.model.config import ModelConfig, load_config
from litebert.model.encoder import mean_tokens
from litebert.model.heads import ClassificationModel
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.tasks.kinds import KINDS as ALL_KINDS
from litebert.train.device import open_device


def fitted(toy_model, tmp_path, kind):
    config = tiny_config(toy_model, make_files(tmp_path, kind, train=60), kind, head_only=True)
    data = read_data(config, open_tokenizer(config.model), load_config(config.model))
    model, _ = make_model(config, data.task)
    device = open_device(config.device)
    return model, data, device, fit_head(model, data.task, data.train, device)


def test_the_kinds_with_a_linear_head_are_those_that_can_be_fitted():
    assert {kind.says for kind in ALL_KINDS.values() if kind.has_linear_head} == set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in TASK_KINDS if kind != "question-answering"])
def test_a_run_ends_in_a_usual_model_folder(toy_model, tmp_path, kind):
    files = make_files(tmp_path / "files", kind, train=200, dev=60)
    config = tiny_config(toy_model, files, kind, head_only=True)
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.completed
    assert result.step == 0
    metric = result.scores.metric
    constant = next(each for each in result.scores.baselines if each.metric == metric)
    assert result.scores.value > constant.score.value, "features of random weights tell some words apart"
    # The encoder is that of the model it started from, to the bit.
    before, after = load_model(toy_model, "encoder"), load_model(result.model, "encoder")
    for name, tensor in after.state_dict().items():
        assert torch.equal(tensor, before.state_dict()[name]), name
    # Opened again, it says the same.
    (scored,) = evaluate_task([result.model], data=files["dev"], device="cpu", threads=1)
    assert scored.evaluations[0].scores[metric].value == pytest.approx(result.scores.value, abs=1e-6)
    card = (result.model / "README.md").read_text(encoding="utf-8")
    assert "under a linear head that was fitted on its features of 200 examples" in card
    assert finetune(config, tmp_path / "run", quiet=True).scores == result.scores


@pytest.mark.parametrize(("kind", "expected"), [("classification", LogisticRegression), ("regression", Ridge)])
def test_the_head_is_scikit_learns(toy_model, tmp_path, kind, expected):
    model, data, device, found = fitted(toy_model, tmp_path, kind)
    features = np.stack(read_features(model, data.task, data.train.features, device)).astype(np.float64)
    targets = np.array([sequence.target for sequence in data.train.features])
    scaled = (features - features.mean(0)) / features.std(0)
    options = {"alpha": 1 / found.strength} if kind == "regression" else {"C": found.strength, "max_iter": 300}
    theirs = expected(**options).fit(scaled, targets)
    with torch.inference_mode():
        ours = model.classifier(torch.from_numpy(features).float()).numpy()
    if kind == "regression":
        np.testing.assert_allclose(ours[:, 0], theirs.predict(scaled), atol=1e-4)
    else:
        shares = np.exp(ours) / np.exp(ours).sum(1, keepdims=True)
        np.testing.assert_allclose(shares, theirs.predict_proba(scaled), atol=1e-4)


def test_a_label_that_training_lacks_is_never_said(toy_model, tmp_path):
    model, data, device, _ = fitted(toy_model, tmp_path, "classification")
    rows = KINDS["label"].rows(data.train.features, read_features(model, data.task, data.train.features, device))
    weight, bias = KINDS["label"].fit(rows, 0.01, 3)
    logits = rows.features @ weight.T + bias
    assert (logits.argmax(1) < 2).all()
    one = rows.take(rows.targets == 1)
    weight, bias = KINDS["label"].fit(one, 0.01, 3)
    assert (one.features @ weight.T + bias).argmax(1).tolist() == [1] * len(one.targets)


def test_what_has_no_linear_head_is_refused_before_a_folder_is_made(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "question-answering")
    with pytest.raises(ConfigError, match="head_only: not for question-answering; preset: frozen"):
        finetune(tiny_config(toy_model, files, "question-answering", head_only=True), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="head_only: fits a new head"):
        tiny_config(toy_model, files, head_only=True, head="keep")


def test_from_the_command_line(cli, toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification", train=60, dev=30)
    arguments = ["finetune", "--task", "classification", "--model", toy_model, "--head-only"]
    arguments += ["--train", files["train"], "--dev", files["dev"], "--out", tmp_path / "run"]
    done = cli(*arguments)
    assert done.code == 0, done
    assert "a linear head fitted on 60 rows of features, C = " in done.out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["completed"]
    asked = cli("predict", "classify", "a good film", "--model", tmp_path / "run" / "best", "--json")
    assert asked.code == 0, asked
    refused = cli(*arguments, "--seeds", "3")
    assert refused.code == 2
    assert "--head-only: the fit has no seed and no learning rate; leave out --seeds and --lr" in refused.err


# -- means of all tokens, which such heads see ------------------------------------------------------------------------


def test_means_are_those_of_each_text_however_it_is_laid_out():
    torch.manual_seed(0)
    hidden = torch.randn(9, 4)
    starts = torch.tensor([0, 3, 7, 7])  # two texts and an unused place; two tokens are padding
    expected = torch.stack([hidden[:3].mean(0), hidden[3:7].mean(0), torch.zeros(4)])
    torch.testing.assert_close(mean_tokens(hidden, starts, None), expected)
    padded = torch.full((2, 5, 4), 99.0)
    padded[0, :3], padded[1, :4] = hidden[:3], hidden[3:7]
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    torch.testing.assert_close(mean_tokens(padded, None, mask), expected[:2])
    torch.testing.assert_close(mean_tokens(padded[:, :3], None, None)[0], expected[0])


def test_a_model_that_averages_is_kept_exported_and_asked(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification", train=60)
    result = finetune(tiny_config(toy_model, files, head_only=True), tmp_path / "run", quiet=True)
    assert load_config(result.model).pooling == "mean"
    assert not load_config(result.model).fits_hub
    plain = load_model(result.model)
    tokenizer = open_tokenizer(str(result.model))
    texts = ["a good film", "it was bad and dull and it was very very poor", "paris"]
    expected = []
    for text in texts:
        ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]])
        with torch.inference_mode():
            hidden = plain.encoder(ids).hidden[0]
            expected.append(plain.classifier(hidden.mean(0)).softmax(-1).numpy())
    export_onnx(result.model, tmp_path / "onnx")
    for source in (result.model, tmp_path / "onnx"):
        said = Predictor(source, device="cpu", threads=1).classify(texts)
        for one, probabilities in zip(said, expected, strict=True):
            np.testing.assert_allclose(
                [one.probabilities[label] for label in plain.config.labels], probabilities, atol=1e-5
            )


def test_other_heads_and_whole_models_keep_the_released_pooling(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    averaged = finetune(tiny_config(toy_model, files, head_only=True), tmp_path / "head", quiet=True)
    whole = finetune(tiny_config(str(averaged.model), files), tmp_path / "whole", quiet=True)
    assert load_config(whole.model).pooling == "first"
    kept = finetune(tiny_config(str(averaged.model), files, head="keep"), tmp_path / "kept", quiet=True)
    assert load_config(kept.model).pooling == "mean"
    assert ModelConfig().pooling == "first"
    assert ClassificationModel.pooler
