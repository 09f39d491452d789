"""Losses where labels are given: those of transformers, with the same gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers

from litebert.errors import InputError
from litebert.model.config import ModelConfig, vary
from litebert.model.heads import MODELS, AnswerModel, MaskedLMModel, PretrainingModel, SpanModel
from litebert.model.hub import save_model
from litebert.model.names import HUB_CLASSES

B, S, V = 4, 12, 60
ALBERT = ModelConfig(
    vocab_size=V,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=16,
    initializer_range=0.3,
)
BERT = vary(ALBERT, model_type="bert", sharing="none", embedding_size=32, hidden_act="gelu")
TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def draw(*shape: int, high: int, ignored: bool = False) -> torch.Tensor:
    labels = torch.randint(0, high, shape, generator=torch.Generator().manual_seed(3))
    if ignored:
        labels[torch.rand(shape, generator=torch.Generator().manual_seed(4)) < 0.5] = -100
    return labels


NUMBERS = torch.tensor([0.5, -1.0, 2.0, 3.5])
SEVERAL = draw(B, 3, high=2).float()
LABELS = ("a", "b", "c")
# head, config, our labels, theirs (None: the same)
CASES = {
    "masked LM": ("masked-lm", {}, {"labels": draw(B, S, high=V, ignored=True)}, None),
    "pretraining": (
        "pretraining",
        {},
        {"labels": draw(B, S, high=V, ignored=True), "sentence_labels": draw(B, high=2)},
        {"labels": draw(B, S, high=V, ignored=True), "sentence_order_label": draw(B, high=2)},
    ),
    "classes": ("classification", {"labels": LABELS}, {"labels": draw(B, high=3)}, None),
    "classes, by problem_type": (
        "classification",
        {"labels": LABELS, "problem_type": "single_label_classification"},
        {"labels": draw(B, high=3)},
        None,
    ),
    "one number": ("classification", {"labels": ("score",)}, {"labels": NUMBERS}, None),
    "one number, by problem_type": ("classification", {"problem_type": "regression"}, {"labels": NUMBERS}, None),
    "several numbers": ("classification", {"labels": LABELS, "problem_type": "regression"}, {"labels": SEVERAL}, None),
    "several labels": ("classification", {"labels": LABELS}, {"labels": SEVERAL}, None),
    "several labels, by problem_type": (
        "classification",
        {"labels": LABELS, "problem_type": "multi_label_classification"},
        {"labels": SEVERAL},
        None,
    ),
    "tokens": ("token-classification", {"labels": LABELS}, {"labels": draw(B, S, high=3, ignored=True)}, None),
    "choices": ("multiple-choice", {}, {"labels": torch.tensor([1])}, None),
    "answers": (
        "span",
        {},
        # The last answer lies beyond the sequence and does not count.
        {"start_positions": torch.tensor([1, 4, 0, 99]), "end_positions": torch.tensor([3, 4, 0, 99])},
        None,
    ),
}


def batch(head: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = draw(B, S, high=V)
    segments = (torch.arange(S) >= S // 2).long().expand(B, S)
    mask = torch.ones(B, S, dtype=torch.long)
    mask[1, -3:] = 0
    if head == "multiple-choice":
        return ids[None], segments[None], mask[None]
    return ids, segments, mask


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [ALBERT, BERT], ids=["albert", "bert"])
def test_losses_and_gradients_are_those_of_transformers(shape, case, tmp_path):
    head, changes, labels, their_labels = CASES[case]
    their_labels = dict(their_labels or labels)
    if shape is BERT and "sentence_order_label" in their_labels:
        their_labels["next_sentence_label"] = their_labels.pop("sentence_order_label")
    torch.manual_seed(0)
    ours = MODELS[head](vary(shape, **changes)).eval()
    save_model(ours, tmp_path)
    architecture = getattr(transformers, HUB_CLASSES[head][shape is BERT])
    theirs = architecture.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ids, segments, mask = batch(head)
    actual = ours(ids, segment_ids=segments, attention_mask=mask, **labels)
    expected = theirs(ids, token_type_ids=segments, attention_mask=mask, **their_labels)
    torch.testing.assert_close(actual.loss, expected.loss, **TOLERANCE)
    actual.loss.backward()
    expected.loss.backward()
    words = theirs.get_input_embeddings().weight.grad
    # Their padding row never learns (padding_idx); the released one does.
    torch.testing.assert_close(ours.encoder.embeddings.word.weight.grad[1:], words[1:], **TOLERANCE)


def test_the_sentence_head_alone_takes_its_labels_as_labels(tmp_path):
    torch.manual_seed(0)
    ours = MODELS["sentence-order"](BERT).eval()
    save_model(ours, tmp_path)
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(tmp_path).eval()
    ids, segments, mask = batch("sentence-order")
    labels = draw(B, high=2)
    actual = ours(ids, segment_ids=segments, attention_mask=mask, labels=labels)
    expected = theirs(ids, token_type_ids=segments, attention_mask=mask, labels=labels)
    torch.testing.assert_close(actual.loss, expected.loss, **TOLERANCE)


def test_only_what_has_labels_has_a_loss():
    torch.manual_seed(0)
    model = PretrainingModel(ALBERT).eval()
    ids, _, _ = batch("pretraining")
    words, order = draw(B, S, high=V, ignored=True), draw(B, high=2)
    assert model(ids).loss is None
    both = model(ids, labels=words, sentence_labels=order).loss
    apart = model(ids, labels=words).loss + model(ids, sentence_labels=order).loss
    torch.testing.assert_close(both, apart)
    # Where only some positions are predicted, their labels alone are needed.
    places = (words != -100).flatten().nonzero()[:, 0]
    asked = model(ids, positions=places, labels=words.flatten()[places], sentence_labels=order)
    torch.testing.assert_close(asked.loss, both)


def test_packed_input_has_the_loss_of_padded_input():
    torch.manual_seed(0)
    model = MaskedLMModel(ALBERT).eval()
    ids, segments, mask = batch("masked-lm")
    words = draw(B, S, high=V, ignored=True).masked_fill(mask == 0, -100)
    real = mask.bool()
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), mask.sum(1).cumsum(0).int()])
    positions = torch.arange(S).expand(B, S)[real]
    packed = model(ids[real], segment_ids=segments[real], position_ids=positions, starts=starts, labels=words[real])
    padded = model(ids, segment_ids=segments, attention_mask=mask, labels=words)
    torch.testing.assert_close(packed.loss, padded.loss, **TOLERANCE)
    zeros, spans = torch.zeros(B, dtype=torch.long), SpanModel(ALBERT).eval()
    with pytest.raises(InputError, match="padded input"):
        spans(ids[real], position_ids=positions, starts=starts, start_positions=zeros, end_positions=zeros)


def test_the_answer_head_weighs_no_answer_by_half_as_released():
    """XLNet's head in transformers is the one that SQuAD 2.0 was released with: (start + end) / 2 + no answer / 2."""
    torch.manual_seed(0)
    model = AnswerModel(ALBERT).eval()
    ids, segments, mask = batch("answer")
    inputs = {"segment_ids": segments, "attention_mask": mask}
    start, end, impossible = torch.tensor([1, 4, 0, 2]), torch.tensor([3, 4, 0, 7]), torch.tensor([0, 0, 1, 0])
    output = model(ids, start_positions=start, end_positions=end, is_impossible=impossible, **inputs)
    assert model(ids, start_positions=start, **inputs).loss is None
    head = transformers.XLNetForQuestionAnswering(
        transformers.XLNetConfig(
            vocab_size=V, d_model=32, n_layer=1, n_head=4, d_inner=64, start_n_top=2, end_n_top=2, layer_norm_eps=1e-12
        )
    )
    with torch.no_grad():
        head.start_logits.dense.load_state_dict(model.start.state_dict())
        head.end_logits.dense_0.load_state_dict(model.end_hidden.state_dict())
        head.end_logits.LayerNorm.load_state_dict(model.end_norm.state_dict())
        head.end_logits.dense_1.load_state_dict(model.end.state_dict())
        head.answer_class.dense_0.load_state_dict(model.answerable_hidden.state_dict())
        head.answer_class.dense_1.load_state_dict(model.answerable.state_dict())
        hidden = model.encoder(ids, **inputs).hidden
        starts = head.start_logits(hidden)
        ends = head.end_logits(hidden, start_positions=start)
        summary = torch.einsum("bs,bsh->bh", starts.softmax(-1), hidden)
        joined = torch.tanh(head.answer_class.dense_0(torch.cat([summary, hidden[:, 0]], -1)))
        none = head.answer_class.dense_1(joined).squeeze(-1)
        expected = (F.cross_entropy(starts, start) + F.cross_entropy(ends, end)) / 2
        expected += F.binary_cross_entropy_with_logits(none, impossible.float()) / 2
    torch.testing.assert_close(output.loss, expected, **TOLERANCE)
    torch.testing.assert_close(output.no_answer, none, **TOLERANCE)
    partly = model(ids, start_positions=start, end_positions=end, **inputs).loss
    assert partly < output.loss
