from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_models import predictor_of, small_model
from small_vocabularies import english

from litebert.errors import InputError

A, B, C = "Anna slept in 2010.", "Ben read the old book.", "The rain fell."


@torch.inference_mode()
def order_logits(a, b):
    """Sentence logits of [CLS] a [SEP] b [SEP], given as lists of sentences, by the plain model."""
    tokenizer = english()
    parts = [[i for sentence in side for i in tokenizer.encode(sentence)] for side in (a, b)]
    ids = [tokenizer.cls_id, *parts[0], tokenizer.sep_id, *parts[1], tokenizer.sep_id]
    segments = [0] * (len(parts[0]) + 2) + [1] * (len(parts[1]) + 1)
    model = small_model("pretraining")
    return model(torch.tensor([ids]), segment_ids=torch.tensor([segments])).sentence[0].double().numpy()


def right(logits):
    return float(np.exp(logits[0]) / np.exp(logits).sum())


def test_order_of_two_sentences():
    result = predictor_of("pretraining").sentence_order(A, B)
    assert result.probability == pytest.approx(right(order_logits([A], [B])), rel=1e-4)
    assert result.forward == result.probability
    assert result.backward is None


def test_symmetric_reading_does_not_depend_on_the_side():
    predictor = predictor_of("pretraining")
    there, back = predictor.sentence_order(A, B, symmetric=True), predictor.sentence_order(B, A, symmetric=True)
    assert there.probability + back.probability == pytest.approx(1)
    forward, backward = order_logits([A], [B]), order_logits([B], [A])
    margin = ((forward[0] - forward[1]) - (backward[0] - backward[1])) / 2
    assert there.probability == pytest.approx(1 / (1 + math.exp(-margin)), rel=1e-4)
    assert there.backward == pytest.approx(right(backward), rel=1e-4)


def test_long_texts_are_read_where_they_meet():
    """Whole sentences next to the boundary, as many as fit: those far away do not matter."""
    predictor = predictor_of("pretraining")
    far = " ".join([C] * 40)
    near = predictor.sentence_order(f"{far} {A}", f"{B} {far}").probability
    assert near == predictor.sentence_order(f"Zoë slept. {far} {A}", f"{B} {far} Her brother slept.").probability
    assert near != predictor.sentence_order(f"{far} {B}", f"{A} {far}").probability
    job = predictor.job("sentence_order", a=f"{far} {A}", b=f"{B} {far}")
    assert job.tokens <= 48


def test_one_endless_sentence_is_cut_at_its_outer_end():
    tokenizer = english()
    long = "anna " * 100
    predictor = predictor_of("pretraining")
    job = predictor.job("sentence_order", a=f"ben {long}", b=f"{long} ben")
    ids = job._requests[0].ids
    assert len(ids) == 48
    assert not set(tokenizer.encode("ben")) <= set(ids.tolist())


def test_coherence_scores_every_boundary_both_ways():
    sentences = [A, B, C, A]
    text = f"  {A} {B}\n\n{C} {A} "
    result = predictor_of("pretraining").coherence(text, group=2)
    assert [s.text for s in result.sentences] == sentences
    assert all(text[s.start : s.end] == s.text for s in result.sentences)
    expected = []
    for i in range(1, 4):
        before, after = sentences[max(0, i - 2) : i], sentences[i : i + 2]
        forward, backward = order_logits(before, after), order_logits(after, before)
        margin = ((forward[0] - forward[1]) - (backward[0] - backward[1])) / 2
        expected.append(1 / (1 + math.exp(-margin)))
    np.testing.assert_allclose(result.boundaries, expected, rtol=1e-4)
    assert result.score == pytest.approx(np.mean(expected), rel=1e-4)


def test_sentences_longer_than_the_model_still_have_a_boundary():
    text = ("anna " * 80).strip() + ". " + ("Ben " * 90).strip() + "."
    result = predictor_of("pretraining").coherence(text)
    assert len(result.boundaries) == 1


def test_bad_texts():
    predictor = predictor_of("pretraining")
    with pytest.raises(InputError, match="a: is empty"):
        predictor.sentence_order("", B)
    with pytest.raises(InputError, match="b: expected a str, got NoneType"):
        predictor.sentence_order(A, None)
    with pytest.raises(InputError, match=r"1 sentence\(s\)"):
        predictor.coherence(A)
    with pytest.raises(InputError, match="group"):
        predictor.coherence(f"{A} {B}", group=0)
    with pytest.raises(InputError, match="second text"):
        predictor.sentence_order(A, "\x01\x02")
