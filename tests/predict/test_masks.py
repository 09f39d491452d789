from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
from small_models import predictor_of, small_model
from small_vocabularies import english, wordpiece

from litebert.errors import InputError
from litebert.predict.masks import MOST_CHARACTERS, _fill, _nearby
from litebert.predict.torch_runtime import TorchRuntime


@torch.inference_mode()
def mask_probabilities(ids, place):
    """Softmax at a place of [CLS] ids [SEP], by the plain model."""
    tokenizer = english()
    sequence = torch.tensor([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    return small_model("pretraining")(sequence).masked_lm[0, place + 1].softmax(-1).numpy()


def test_one_mask_against_the_plain_model():
    result = predictor_of("pretraining").fill_mask("Anna bought [MASK] apples.", top=np.int64(7))
    tokenizer = english()
    before = tokenizer.encode("Anna bought")
    after = tokenizer.encode("x apples.")[len(tokenizer.encode("x")) :]
    expected = mask_probabilities([*before, tokenizer.mask_id, *after], len(before))
    (mask,) = result.masks
    assert (mask.start, mask.end) == (12, 18)
    order = np.argsort(-expected, kind="stable")[:7]
    assert [c.piece for c in mask.candidates] == [tokenizer.piece(int(i)) for i in order]
    np.testing.assert_allclose([c.probability for c in mask.candidates], expected[order], rtol=1e-4)
    for candidate in mask.candidates:
        assert candidate.text.replace(" ", "") == f"Annabought{candidate.word}apples."


def test_several_masks_are_filled_each_for_itself():
    predictor = predictor_of("pretraining")
    result = predictor.fill_mask("[MASK] bought [MASK] apples", top=2)
    assert [(m.start, m.end) for m in result.masks] == [(0, 6), (14, 20)]
    assert all("[MASK]" in c.text and c.text.count("[MASK]") == 1 for m in result.masks for c in m.candidates)
    assert result.joint == ()


def test_joint_fill_finds_the_best_of_all_combinations():
    """With as many beams as pieces, the search is exhaustive over the first mask: compare with brute force."""
    predictor = predictor_of("pretraining", seed=1)
    tokenizer = english()
    size = tokenizer.vocab_size
    result = predictor.fill_mask("anna [MASK] [MASK]", top=size, joint=True)
    ids = tokenizer.encode("anna")
    first = _probabilities(predictor, [[*ids, tokenizer.mask_id, tokenizer.mask_id]], len(ids))[0]
    second = _probabilities(predictor, [[*ids, piece, tokenizer.mask_id] for piece in range(size)], len(ids) + 1)
    joint = first[:, None] * second  # [first piece, second piece]
    silent = [number for number, piece in enumerate(tokenizer.pieces) if piece in SILENT]
    joint[silent], joint[:, silent] = 0, 0
    best = np.unravel_index(np.argsort(-joint, axis=None)[:5], joint.shape)
    for found, a, b in zip(result.joint[:5], *best, strict=True):
        assert found.probability == pytest.approx(joint[a, b], rel=1e-3)
    words = [tokenizer.piece(int(i[0])).removeprefix("▁") for i in best]
    assert result.joint[0].words == tuple(words)
    assert not SILENT & {word for fill in result.joint for word in fill.words}


@torch.inference_mode()
def _probabilities(predictor, rows, place):
    tokenizer = english()
    ids = torch.tensor([[tokenizer.cls_id, *row, tokenizer.sep_id] for row in rows])
    return small_model("pretraining", seed=1)(ids).masked_lm[:, place + 1].softmax(-1).numpy()


def test_a_joint_fill_says_beforehand_what_it_costs(monkeypatch):
    """A server refuses by this number: one text would otherwise keep it busy for as long as hundreds."""
    monkeypatch.setattr("litebert.predict.job.MOST_NUMBERS", 8 * (english().vocab_size + 8 * 8))
    predictor, run, passes = predictor_of("pretraining"), TorchRuntime.run, []
    monkeypatch.setattr(
        predictor.runtime, "run", lambda r: passes.append(list(map(len, r))) or run(predictor.runtime, r)
    )
    jobs = [predictor.job("fill_mask", text="[MASK] anna [MASK] [MASK]", top=6, joint=True) for _ in range(4)]
    assert all(len(result.joint) == 6 for result in predictor.run(jobs))
    assert sum(job.tokens for job in jobs) == sum(map(sum, passes)) == 4 * (1 + 2 * 6) * passes[0][0]
    assert max(map(len, passes)) <= 8, "the outputs of later passes are held within bounds too"


def test_a_long_text_is_read_around_each_mask():
    """46 tokens fit beside [CLS] and [SEP]; the window has the mask in its middle."""
    predictor = predictor_of("pretraining")
    tokenizer = english()
    text = "slept " * 60 + "[MASK] " + "anna " * 90 + "[MASK]" + " ben" * 3
    result = predictor.fill_mask(text, top=4)
    ids = tokenizer.encode(text, allow_special=True)
    places = [i for i, number in enumerate(ids) if number == tokenizer.mask_id]
    assert len(ids) > 3 * 46
    for mask, place in zip(result.masks, places, strict=True):
        begin = min(max(0, place - 23), len(ids) - 46)
        expected = mask_probabilities(ids[begin : begin + 46], place - begin)
        np.testing.assert_allclose(mask.candidates[0].probability, expected.max(), rtol=1e-4)


def test_masks_of_one_window_share_a_pass():
    predictor = predictor_of("pretraining")
    job = predictor.job("fill_mask", text="slept " * 60 + "[MASK] anna [MASK]" + " anna" * 60)
    assert job.tokens == 48


@pytest.mark.parametrize(
    ("text", "piece", "filled"),
    [
        ("I am [MASK].", "▁happy", "I am happy."),
        ("I read[MASK] it", "ing", "I reading it"),
        ("I read [MASK] it", "ing", "I reading it"),
        ("I am[MASK]", "▁happy", "I am happy"),
        ("([MASK])", "▁happy", "(happy)"),
        ("[MASK] it is", "▁now", "now it is"),
    ],
)
def test_filled_text_of_sentence_pieces(text, piece, filled):
    assert _fill_with(text, piece, "sentencepiece") == filled


@pytest.mark.parametrize(
    ("text", "piece", "filled"),
    [
        ("a jump[MASK] dog", "##ed", "a jumped dog"),
        ("the [MASK] dog", "lazy", "the lazy dog"),
        ("中[MASK]人", "国", "中国人"),
    ],
)
def test_filled_text_of_word_pieces(text, piece, filled):
    assert _fill_with(text, piece, "wordpiece") == filled


def _fill_with(text, piece, kind):
    tokenizer = wordpiece() if kind == "wordpiece" else english()

    class OnePiece:
        kind = tokenizer.kind

        def piece(self, number):
            return piece

    start = text.index("[MASK]")
    return _fill(text, [(start, start + 6)], [0], OnePiece())


def test_only_the_mask_is_special():
    """[SEP] in a text is five characters: nobody can put a separator into the model's input."""
    job = predictor_of("pretraining").job("fill_mask", text="anna [SEP] [CLS] [MASK]")
    ids = job._requests[0].ids
    assert (ids == english().sep_id).sum() == 1
    assert (ids == english().cls_id).sum() == 1


BAD = {
    "": "is empty",
    " \n\t": "is empty",
    "no mask here": r"contains no \[MASK\]",
    "\ud800 [MASK]": "character 0 .* surrogate",
    "[MASK] " * 1001: "the limit is 1,000",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:9]))
def test_bad_texts(text):
    with pytest.raises(InputError, match=BAD[text]):
        predictor_of("pretraining").fill_mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "[MASK]",
        "🙂🙂 [MASK] 🙂",
        "\x00\x01[MASK]\x7f",
        "שלום [MASK] مرحبا",
        "👨‍👩‍👧[MASK]",
        "\u202eabc [MASK]",
        "[MASK" + "[MASK]",
    ],
    ids=repr,
)
def test_strange_texts_are_filled(text):
    result = predictor_of("pretraining").fill_mask(text, top=1)
    assert len(result.masks) == 1
    mask = result.masks[0]
    assert text[mask.start : mask.end] == "[MASK]"


SILENT = {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁"}


def test_candidates_are_what_one_can_read():
    tokenizer = english()
    size = tokenizer.vocab_size
    # Rows of the model without a piece are no candidates either.
    for more in (0, 30):
        result = predictor_of("pretraining", vocab_size=size + more).fill_mask("a [MASK]", top=size + more)
        found = [candidate.piece for candidate in result.masks[0].candidates]
        assert sorted(found) == sorted(set(tokenizer.pieces) - SILENT)
        # Their probabilities are the model's own, not shared out anew.
        assert 0.9 < sum(candidate.probability for candidate in result.masks[0].candidates) < 1
    assert len(predictor_of("pretraining").fill_mask("a [MASK]", top=size - 7).masks[0].candidates) == size - 7


def test_options(monkeypatch):
    predictor = predictor_of("pretraining")
    size = english().vocab_size
    everything = predictor.fill_mask("a [MASK]", top=10**9).masks[0].candidates
    assert len(everything) == size - len(SILENT)
    assert all(a.probability >= b.probability for a, b in itertools.pairwise(everything))
    for top in (0, -1, 1.5, "3", True):
        with pytest.raises(InputError, match="top"):
            predictor.fill_mask("a [MASK]", top=top)
    with pytest.raises(InputError, match=r"joint: .* 2 to 16"):
        predictor.fill_mask("a [MASK]", joint=True)
    monkeypatch.setattr("litebert.predict.masks.MOST_BEAMS", 20)
    with pytest.raises(InputError, match="must be <= 20 with joint"):
        predictor.fill_mask("[MASK] [MASK]", top=10**6, joint=True)
    with pytest.raises(InputError, match="exceed the limit of 100,000"):
        predictor.fill_mask("[MASK] " * 900, top=size)
    with pytest.raises(InputError, match="too far apart"):
        predictor.fill_mask("[MASK] " + "anna " * 100 + "[MASK]", joint=True)


@pytest.mark.parametrize("joint", [False, True])
def test_many_candidates_of_a_long_text_carry_its_surroundings_only(joint):
    """A request of two kilobytes must not make an answer of megabytes."""
    text = "anna [MASK] " * (2 if joint else 170) + "x" * 2000 + "."
    result = predictor_of("pretraining", max_position_embeddings=4096).fill_mask(text, top=100, joint=joint)
    candidates = [candidate for mask in result.masks for candidate in mask.candidates]
    assert len(candidates) == len(result.masks) * 100
    assert sum(len(candidate.text) for candidate in candidates) < MOST_CHARACTERS + 60 * len(candidates)
    assert sum(len(fill.text) for fill in result.joint) < MOST_CHARACTERS
    for mask in result.masks:
        assert text[mask.start : mask.end] == "[MASK]"
    for candidate in result.masks[1].candidates:
        assert candidate.word in candidate.text
        assert "anna" in candidate.text
    whole = predictor_of("pretraining", max_position_embeddings=4096).fill_mask("anna [MASK] " + "x" * 2000, top=40)
    assert all(len(candidate.text) > 2000 for candidate in whole.masks[0].candidates)


@pytest.mark.parametrize(
    ("text", "room", "nearby"),
    [
        ("aaaa[MASK]bbbbb[MASK]cc", 2, "aa[MASK]bb … bb[MASK]cc"),
        ("aaaa[MASK]bbbb[MASK]ccc", 2, "aa[MASK]bbbb[MASK]cc"),
        ("[MASK][MASK]", 2, "[MASK][MASK]"),
        ("aaaa[MASK]cccc", 3, "aaa[MASK]ccc"),
        ("aaaa[MASK]cccc", 99, "aaaa[MASK]cccc"),
    ],
)
def test_nearby(text, room, nearby):
    spans = [match.span() for match in re.finditer(re.escape("[MASK]"), text)]
    kept, found = _nearby(text, spans, room)
    assert kept == nearby
    assert found == [match.span() for match in re.finditer(re.escape("[MASK]"), nearby)]
