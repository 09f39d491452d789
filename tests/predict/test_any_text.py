"""Whatever a text holds, there is a result or a clear word about it: never another error."""

from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import LABELS, predictor_of

from litebert.errors import InputError

# Any characters, and pieces that have a meaning somewhere (the first is half of a surrogate pair).
PARTS = [
    "\ud83d",
    "[MASK]",
    "[SEP]",
    "[CLS]",
    "<pad>",
    "\u202e",
    "\u200d",
    "🙂",
    "שלום",
    "مرحبا",
    "。",
    ". ",
    "\n\n",
    "▁",
]
TEXTS = st.lists(st.one_of(st.text(max_size=20), st.sampled_from([*PARTS, "▁", "\x00", "_", "e\u0301"]))).map("".join)

ASKED = {
    "fill_mask": ("pretraining", lambda p, t: p.fill_mask(t + "[MASK]" + t, top=2)),
    "sentence_order": ("pretraining", lambda p, t: p.sentence_order(t, t, symmetric=True)),
    "coherence": ("pretraining", lambda p, t: p.coherence(t + ". Anna slept. " + t)),
    "embed": ("pretraining", lambda p, t: p.embed(t)),
    "attention": ("pretraining", lambda p, t: p.attention(t, t, max_tokens=8)),
    "classify": ("classification", lambda p, t: p.classify(t, t)),
    "tag": ("token-classification", lambda p, t: p.tag(t)),
    "answer": ("answer", lambda p, t: p.answer(t, t)),
    "span": ("span", lambda p, t: p.answer(t, t)),
    "choose": ("multiple-choice", lambda p, t: p.choose(t, t, [t, t])),
}


@functools.cache
def predictor(head):
    return predictor_of(head, **({"labels": LABELS} if "classification" in head else {}))


@pytest.mark.parametrize("ability", ASKED)
@settings(max_examples=25, deadline=None)
@given(text=TEXTS)
def test_a_result_or_an_input_error(ability, text):
    head, ask = ASKED[ability]
    try:
        result = ask(predictor(head), text)
    except InputError:
        return
    plain = {"vector": result.tolist()} if ability == "embed" else result.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)).keys() == plain.keys()
