"""Losses of every kind: packed and padded give the same values and gradients, and both what plain code gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from toy_tasks import mixed_choices, rows_of, write_rows

from litebert.finetuning.batches import Shape, make_batch
from litebert.finetuning.config import finetune_config
from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.objective import batch_loss, to_device
from litebert.finetuning.order import group_units
from litebert.finetuning.setup import make_model as build
from litebert.model.config import load_config
from litebert.model.fast.layers import FastLayers
from litebert.tasks.kinds.kind import row_logsumexp

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
