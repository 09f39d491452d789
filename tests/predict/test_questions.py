"""answer and choose, against brute force over the plain model's outputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from small_models import predictor_of, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.tasks.task import Task

QUESTION = "Who bought the apples?"
CONTEXT = "The teacher walked to the café. Anna bought 1,000 apples in 2010, and was happy. Ben slept."


def window_input(question, context):
    tokenizer = english()
    ids = [tokenizer.cls_id, *question, tokenizer.sep_id, *context, tokenizer.sep_id]
    return torch.tensor([ids]), torch.tensor([[0] * (len(question) + 2) + [1] * (len(context) + 1)])


@torch.inference_mode()
def test_best_span_by_brute_force():
    """A model long enough for one window: every span of at most four tokens."""
    task = Task("qa", "question-answering", max_length=100, max_answer=4)
    predictor = predictor_of("span", task, max_position_embeddings=100)
    question, context = english().encode(QUESTION), english().encode_offsets(CONTEXT)
    ids, segments = window_input(question, context.ids)
    model = small_model("span", max_position_embeddings=100)
    start, end = (logits[0].double().numpy() for logits in model(ids, segment_ids=segments)[:2])
    before = len(question) + 2
    scores = {}
    for i, j in itertools.product(range(len(context.ids)), repeat=2):
        if i <= j < i + 4:
            text = CONTEXT[context.offsets[i][0] : context.offsets[j][1]]
            score = start[before + i] + end[before + j]
            if text.strip():
                scores[text] = max(scores.get(text, -1e9), score)
    expected = sorted(scores, key=lambda text: -scores[text])
    result = predictor.answer(QUESTION, CONTEXT, top=5)
    assert [c.text for c in result.candidates] == expected[:5]
    best = result.candidates[0]
    assert (result.text, result.start, result.end) == (best.text, best.start, best.end)
    assert CONTEXT[result.start : result.end] == result.text
    top = np.array([scores[text] for text in expected[:20]])
    shares = np.exp(top - top.max()) / np.exp(top - top.max()).sum()
    np.testing.assert_allclose([c.probability for c in result.candidates], shares[:5], rtol=1e-3)
    assert result.no_answer is None


def test_a_long_context_is_read_in_windows():
    task = Task("qa", "question-answering", max_length=40, stride=12)
    predictor = predictor_of("span", task)
    context = " ".join([CONTEXT] * 5)
    job = predictor.job("answer", question=QUESTION, context=context)
    assert len(job._requests) > 5
    assert max(map(len, job._requests)) <= 40
    (result,) = predictor.run([job])
    assert result.text == context[result.start : result.end] != ""


@torch.inference_mode()
def test_no_answer_and_its_threshold():
    changes = {"max_position_embeddings": 100}
    task = Task("qa", "question-answering", max_length=100, answerable_head=True)
    predictor = predictor_of("answer", task, **changes)
    question, context = english().encode(QUESTION), english().encode(CONTEXT)
    ids, segments = window_input(question, context)
    outside = torch.ones_like(ids)
    outside[0, 0] = 0
    outside[0, len(question) + 2 : -1] = 0
    logit = float(small_model("answer", **changes)(ids, segment_ids=segments, outside=outside).no_answer)
    result = predictor.answer(QUESTION, CONTEXT)
    assert result.no_answer == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-4)
    assert (result.text == "") == (logit > 0)
    answered = predictor.answer(QUESTION, CONTEXT, threshold=logit + 0.01)
    assert answered.text == answered.candidates[0].text != ""
    assert answered.probability == answered.candidates[0].probability
    refused = predictor.answer(QUESTION, CONTEXT, threshold=logit - 0.01)
    assert (refused.text, refused.start, refused.end) == ("", None, None)
    assert refused.probability == refused.no_answer
    assert refused.candidates == answered.candidates


@torch.inference_mode()
def test_a_plain_head_can_say_no_if_asked_to():
    predictor = predictor_of("span", Task("qa", "question-answering", max_length=100), max_position_embeddings=100)
    ids, segments = window_input(english().encode(QUESTION), english().encode(CONTEXT))
    start, end, _ = small_model("span", max_position_embeddings=100)(ids, segment_ids=segments)
    best = predictor.answer(QUESTION, CONTEXT)
    null = float(start[0, 0] + end[0, 0]) - best.candidates[0].score
    said = predictor.answer(QUESTION, CONTEXT, threshold=null + 0.01)
    assert (said.text, said.no_answer) == (best.text, pytest.approx(1 / (1 + np.exp(-null)), rel=1e-3))
    assert predictor.answer(QUESTION, CONTEXT, threshold=null - 0.01).text == ""


@torch.inference_mode()
def test_choice_is_the_softmax_over_the_options():
    predictor = predictor_of("multiple-choice", max_position_embeddings=100)
    options = ["Anna", "Ben", "The teacher"]
    scores = []
    for option in options:
        ids, segments = window_input(english().encode(CONTEXT), english().encode(f"{QUESTION} {option}"))
        model = small_model("multiple-choice", max_position_embeddings=100)
        scores.append(float(model(ids[None], segment_ids=segments[None])))
    expected = torch.tensor(scores).softmax(-1).numpy()
    result = predictor.choose(CONTEXT, QUESTION, options)
    np.testing.assert_allclose(result.probabilities, expected, rtol=1e-4)
    assert (result.index, result.option) == (int(expected.argmax()), options[int(expected.argmax())])
    for many in (
        predictor.choose([CONTEXT, CONTEXT], QUESTION, options),
        predictor.choose([CONTEXT, CONTEXT], [QUESTION] * 2, [options, options]),
    ):
        assert [choice.probabilities for choice in many] == [pytest.approx(result.probabilities)] * 2
    assert len(predictor.choose(CONTEXT * 20, "", ["it ends", "it goes on"]).probabilities) == 2


def test_bad_questions():
    predictor = predictor_of("span")
    for arguments, message in (
        ((" ", CONTEXT), "question: is empty"),
        ((QUESTION, ""), "context: is empty"),
        ((QUESTION, "\x01"), "context: has no text"),
        ((QUESTION, 7), "context: expected a str, got int"),
    ):
        with pytest.raises(InputError, match=message):
            predictor.answer(*arguments)
    for threshold in ("0", True, float("nan")):
        with pytest.raises(InputError, match=r"threshold: must be a number, not"):
            predictor.answer(QUESTION, CONTEXT, threshold=threshold)
    predictor = predictor_of("multiple-choice")
    for options in ([], ["one"], "two", None):
        with pytest.raises(InputError, match="options: expected a list of 2 or more"):
            predictor.choose(CONTEXT, QUESTION, options)
    with pytest.raises(InputError, match=r"options\[1\]: is empty"):
        predictor.choose(CONTEXT, QUESTION, ["a", ""])
