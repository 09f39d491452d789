"""The model of a run: its start, its losses against torch's own, and its outputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from toy_tasks import make_files, mixed_choices, rows_of, tiny_config, write_rows

from litebert.finetuning.batches import Shape, group_units, make_batch
from litebert.finetuning.config import finetune_config
from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.model import batch_loss, run_sequences, to_device
from litebert.finetuning.model import make_model as build
from litebert.finetuning.run import finetune
from litebert.model.config import load_config
from litebert.model.fast.layers import FastLayers
from litebert.model.hub import load_model
from litebert.tasks.kinds.kind import row_logsumexp
from litebert.train.device import DeviceConfig, open_device

CASES = {
    "classification": ("classification", 0),
    "regression": ("regression", 0),
    "multi-label": ("multi-label", 0),
    "tags": ("token-classification", 0),
    "choices": ("multiple-choice", 0),
    "mixed choices": ("multiple-choice", 0),  # questions with two to four options
    "span": ("question-answering", 0),
    "answer": ("question-answering", 1),
}


def prepare(case, toy_model, tmp_path):
    kind, seed = CASES[case]
    rows = mixed_choices(6, seed) if case == "mixed choices" else rows_of(kind, 6, seed)
    file = write_rows(tmp_path / "train.jsonl", rows)
    config = finetune_config(
        {
            "task": kind,
            "data": {"train": str(file), "dev": str(file)},
            "model": str(toy_model),
            "max_length": 32,
            "classifier_dropout": 0.0,
        }
    )
    data = read_data(config, open_tokenizer(config.model), load_config(config.model))
    torch.manual_seed(1)
    model, _ = build(config, data.task)
    return model.train(), data


def loss_and_gradients(model, data, layout, shape=None):
    model.zero_grad()
    # Not in the order of the file, as in training.
    units = reversed(group_units(data.task, data.train.features))
    batch = make_batch(data.task, [data.train.features[i] for unit in units for i in unit], layout, 0, shape)
    inputs, targets = to_device(batch, torch.device("cpu"))
    loss, right = batch_loss(model, data.task.kind, inputs, targets, batch.max_length, batch.num_rows)
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.item(), right.item(), batch.count, gradients


@pytest.mark.parametrize("case", CASES)
def test_packed_padded_and_filled_batches_give_the_same_loss_and_gradients(case, toy_model, tmp_path):
    model, data = prepare(case, toy_model, tmp_path)
    rows = len(data.train.features)
    tokens = sum(len(sequence.ids) for sequence in data.train.features)
    plain = loss_and_gradients(model, data, "padded")
    others = {
        "packed": loss_and_gradients(model, data, "packed"),
        "packed with filler": loss_and_gradients(model, data, "packed", Shape(tokens + 75, rows + 6)),
        "padded with filler": loss_and_gradients(model, data, "padded", Shape(32, rows + 2)),
    }
    assert plain[2] > 0
    for name, other in others.items():
        assert other[:3] == pytest.approx(plain[:3], rel=1e-5), name
        assert set(other[3]) == set(plain[3])
        for parameter, gradient in plain[3].items():
            torch.testing.assert_close(other[3][parameter], gradient, atol=2e-5, rtol=1e-4, msg=f"{name}: {parameter}")


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_the_sum_of_plain_losses_of_single_sequences(case, toy_model, tmp_path):
    """One sequence at a time, through the model's own forward, with torch's own losses."""
    model, data = prepare(case, toy_model, tmp_path)
    model.eval()
    expected = 0.0
    choices: dict[int, list] = {}
    for sequence in data.train.features:
        ids, segments = (torch.from_numpy(x.astype(np.int64))[None] for x in (sequence.ids, sequence.segments))
        target = sequence.target
        if "choices" in case:
            choices.setdefault(sequence.example, []).append((model(ids[None], segment_ids=segments[None]), target))
        elif case == "span":
            start, end, _ = model(ids, segment_ids=segments)
            places = [torch.tensor([place]) for place in target[:2]]
            expected += (F.cross_entropy(start, places[0]) + F.cross_entropy(end, places[1])) / 2
        elif case == "answer":
            outside = ~sequence.inside
            outside[0] = False
            start, end = (torch.tensor([place]) for place in target[:2])
            output = model(ids, segment_ids=segments, outside=torch.from_numpy(outside)[None], start_positions=start)
            spans = (F.cross_entropy(output.start, start) + F.cross_entropy(output.end, end)) / 2
            null = F.binary_cross_entropy_with_logits(output.no_answer, torch.tensor([float(target[2])]))
            expected += spans + null / 2
        else:
            logits = model(ids, segment_ids=segments)[0]
            if case == "classification":
                expected += F.cross_entropy(logits, torch.tensor(target))
            elif case == "regression":
                expected += F.mse_loss(logits, torch.tensor([target]))
            elif case == "multi-label":
                expected += F.binary_cross_entropy_with_logits(logits, torch.from_numpy(target))
            else:
                expected += F.cross_entropy(logits, torch.from_numpy(target), reduction="sum")
    for group in choices.values():
        scores = torch.cat([score[:, 0] for score, _ in group])
        expected += F.cross_entropy(scores, torch.tensor(group[0][1]))
    loss, _, _, _ = loss_and_gradients(model, data, "packed")
    assert loss == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_fast_layers_give_the_same_loss_and_gradients(case, toy_model, tmp_path):
    """Heads that look at [CLS] alone ask for nothing else of the last layer."""
    model, data = prepare(case, toy_model, tmp_path)
    shape = Shape(sum(len(sequence.ids) for sequence in data.train.features) + 40, len(data.train.features) + 4)
    plain = loss_and_gradients(model, data, "packed", shape)
    model.encoder.fast_layers = FastLayers(model.encoder, torch.float32)
    fast = loss_and_gradients(model, data, "packed", shape)
    assert fast[:3] == pytest.approx(plain[:3], rel=1e-5)
    assert set(fast[3]) == set(plain[3])
    for name, gradient in plain[3].items():
        torch.testing.assert_close(fast[3][name], gradient, atol=2e-5, rtol=1e-3, msg=name)


def test_row_logsumexp_equals_torch_row_by_row():
    values, rows = torch.randn(40) * 30, torch.randint(0, 4, (40,))
    result = row_logsumexp(values, rows, 5)
    for row in range(4):
        torch.testing.assert_close(result[row], values[rows == row].logsumexp(0))
    assert result[4] < -1e29  # a row without places


CPU = open_device(DeviceConfig(device="cpu", threads=1))
TRANSFORMERS = {
    "classification": transformers.AutoModelForSequenceClassification,
    "regression": transformers.AutoModelForSequenceClassification,
    "multi-label": transformers.AutoModelForSequenceClassification,
    "token-classification": transformers.AutoModelForTokenClassification,
    "multiple-choice": transformers.AutoModelForMultipleChoice,
    "question-answering": transformers.AutoModelForQuestionAnswering,
}


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_a_fine_tuned_folder_opens_in_transformers_with_the_same_predictions(kind, toy_model, tmp_path):
    files = make_files(tmp_path / "files", kind, train=16, dev=8)
    config = tiny_config(toy_model, files, kind, steps=3)
    result = finetune(config, tmp_path / "run", quiet=True)
    data = read_data(config, open_tokenizer(result.model), load_config(result.model))
    ours = run_sequences(load_model(result.model), data.task, data.dev[0].features, CPU)
    theirs = TRANSFORMERS[kind].from_pretrained(result.model).eval()
    for sequence, output in zip(data.dev[0].features, ours, strict=True):
        ids, segments = (torch.from_numpy(x.astype(np.int64))[None] for x in (sequence.ids, sequence.segments))
        if kind == "multiple-choice":
            ids, segments = ids[None], segments[None]
        with torch.inference_mode():
            expected = theirs(input_ids=ids, token_type_ids=segments)
        if kind == "question-answering":
            np.testing.assert_allclose(output["start"], expected.start_logits[0], atol=2e-5)
            np.testing.assert_allclose(output["end"], expected.end_logits[0], atol=2e-5)
        else:
            np.testing.assert_allclose(output["logits"], expected.logits[0].squeeze(), atol=2e-5)
    if data.task.labels:
        assert tuple(theirs.config.id2label.values()) == data.task.labels


@pytest.mark.parametrize("fixed", [False, True])
def test_the_answer_head_finds_the_same_alone_and_in_a_batch(toy_model, tmp_path, fixed):
    files = make_files(tmp_path / "files", "question-answering", train=16, dev=8, seed=1)
    config = tiny_config(toy_model, files, "question-answering", steps=3)
    result = finetune(config, tmp_path / "run", quiet=True)
    data = read_data(config, open_tokenizer(result.model), load_config(result.model))
    model = load_model(result.model).eval()
    assert model.head == "answer"
    for sequence, output in zip(
        data.dev[0].features, run_sequences(model, data.task, data.dev[0].features, CPU, fixed), strict=True
    ):
        ids, segments = (torch.from_numpy(x.astype(np.int64))[None] for x in (sequence.ids, sequence.segments))
        outside = ~sequence.inside
        outside[0] = False
        with torch.inference_mode():
            expected = model(ids, segment_ids=segments, outside=torch.from_numpy(outside)[None])
        np.testing.assert_allclose(output["answerable"], expected.no_answer[0], atol=2e-5)
        np.testing.assert_allclose(output["start_log_prob"], expected.start_log_prob[0], atol=2e-5, rtol=1e-5)
        np.testing.assert_array_equal(output["start_index"], expected.start_index[0])
        np.testing.assert_allclose(output["end_log_prob"], expected.end[0], atol=2e-5, rtol=1e-5)
