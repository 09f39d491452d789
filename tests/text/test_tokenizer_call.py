"""A tokenizer that is called gives what transformers' AutoTokenizer gives for the same files."""

from __future__ import annotations

import functools
import itertools
import tempfile

import numpy as np
import pytest
import torch
import transformers
from small_vocabularies import english, wordpiece

from litebert import Model, PretrainingModel, Tokenizer
from litebert.errors import InputError
from litebert.model.config import ModelConfig

TEXTS = [
    "Anna slept.",
    "",
    "Her brother read the old book (twice) in 1999, and was happy.",
    "the [MASK] slept [SEP] on",
]
PAIRS = ["The teacher walked to the café while the rain fell.", "A farmer slept", "Ben", "the rain fell [MASK]"]
VOCABULARIES = {"sentencepiece": english, "wordpiece": wordpiece}


@functools.cache
def both(kind: str):
    with tempfile.TemporaryDirectory() as folder:
        VOCABULARIES[kind]().save(folder)
        return Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)


def plain(batch) -> dict:
    return {name: np.asarray(value).tolist() for name, value in batch.items()}


@pytest.mark.parametrize("kind", VOCABULARIES)
@pytest.mark.parametrize("pairs", [None, PAIRS], ids=["texts", "pairs"])
def test_padding_and_truncation(kind, pairs):
    ours, theirs = both(kind)
    for length, padding, truncation, specials in itertools.product(
        (5, 8, 9, 16), (True, "max_length"), (True, "longest_first"), (True, False)
    ):
        options = dict(padding=padding, truncation=truncation, max_length=length, add_special_tokens=specials)
        assert plain(ours(TEXTS, pairs, **options)) == plain(theirs(TEXTS, pairs, **options)), options
        tensors = ours(TEXTS, pairs, **options, return_tensors="pt")
        assert {value.dtype for value in tensors.values()} == {torch.int64}
        assert plain(tensors) == plain(theirs(TEXTS, pairs, **options, return_tensors="pt")), options
        arrays = ours(TEXTS, pairs, **options, return_tensors="np")
        assert all(isinstance(value, np.ndarray) for value in arrays.values())
        assert plain(arrays) == plain(tensors)


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_one_text_and_lists_without_tensors(kind):
    ours, theirs = both(kind)
    assert dict(ours(TEXTS[0])) == dict(theirs(TEXTS[0]))
    assert dict(ours(TEXTS[0], PAIRS[0])) == dict(theirs(TEXTS[0], PAIRS[0]))
    assert dict(ours(TEXTS)) == dict(theirs(TEXTS))
    assert plain(ours(TEXTS[0], return_tensors="pt")) == plain(theirs(TEXTS[0], return_tensors="pt"))
    for side, texts in (("only_first", (TEXTS[2], PAIRS[2])), ("only_second", (PAIRS[2], TEXTS[2]))):
        options = dict(truncation=side, max_length=12)
        assert len(ours(*texts, **options).input_ids) == 12
        assert dict(ours(*texts, **options)) == dict(theirs(*texts, **options))


def test_a_special_piece_in_a_text_is_text_on_request():
    ours, _ = both("sentencepiece")
    assert ours.mask_id in ours(TEXTS[3]).input_ids
    strict = ours(TEXTS[3], allow_special=False, add_special_tokens=False).input_ids
    assert strict == ours.encode(TEXTS[3])
    assert ours.mask_id not in strict


def test_a_batch_goes_straight_into_a_model():
    ours, _ = both("sentencepiece")
    sizes = dict(embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    model = PretrainingModel(ModelConfig(vocab_size=ours.vocab_size, **sizes)).eval()
    assert isinstance(model, Model)
    batch = ours(TEXTS, PAIRS, padding=True, return_tensors="pt").to("cpu")
    words = model(**batch).masked_lm
    assert words.shape[:2] == batch.input_ids.shape
    again = model(batch.input_ids, segment_ids=batch["token_type_ids"], attention_mask=batch.attention_mask)
    assert torch.equal(words, again.masked_lm)
    with pytest.raises(InputError, match="segment_ids and token_type_ids are the same input; give one"):
        model(**batch, segment_ids=batch.token_type_ids)
    with pytest.raises(AttributeError, match=r"has input_ids, token_type_ids, attention_mask, not 'labels'"):
        batch.labels  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((TEXTS,), dict(return_tensors="pt"), "different lengths.*padding=True"),
        ((TEXTS,), dict(return_tensors="tf"), "return_tensors: 'tf' is not one of"),
        ((TEXTS,), dict(padding="left"), "padding: 'left' is not one of"),
        ((TEXTS,), dict(truncation="never"), "truncation: 'never' is not one of"),
        ((TEXTS,), dict(truncation=True), "max_length: required"),
        ((TEXTS, "Ben"), {}, "text_pair: must be a str if text is a str"),
        ((TEXTS, PAIRS[:1]), {}, "text_pair: expected 4 texts, one per text, got 1"),
        ((TEXTS[0], PAIRS[0]), dict(truncation="only_first", max_length=5), "only_first.*text has"),
        (([1, 2],), {}, "expected a str, got int"),
    ],
)
def test_mistakes(arguments, options, message):
    with pytest.raises(InputError, match=message):
        both("sentencepiece")[0](*arguments, **options)
