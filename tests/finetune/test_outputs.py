"""Raw outputs of many sequences at once are those of each alone, and what transformers gives for the saved folder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from toy_tasks import make_files, tiny_config

from litebert.finetuning.data import open_tokenizer, read_data
from litebert.finetuning.outputs import run_sequences
from litebert.finetuning.run import finetune
from litebert.model.config import load_config
from litebert.model.hub import load_model
from litebert.train.device import DeviceConfig, open_device

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
