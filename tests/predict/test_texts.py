from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import predictor_of, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.tasks.task import Task

TEXT = "Anna read the old book (twice)."
LABELS = ("bad", "fine", "good")


def sequence(*texts):
    """[CLS] a [SEP] (b [SEP]) and its segments, as tensors of one row; a text may be ids."""
    tokenizer = english()
    ids, segments = [tokenizer.cls_id], [0]
    for number, text in enumerate(texts):
        part = tokenizer.encode(text) if isinstance(text, str) else list(text)
        ids += [*part, tokenizer.sep_id]
        segments += [number] * (len(part) + 1)
    return torch.tensor([ids]), torch.tensor([segments])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@torch.inference_mode()
def test_embeddings_of_short_and_long_texts(pooling):
    model = small_model("masked-lm")
    predictor = predictor_of("masked-lm")

    def vector(part):
        ids, segments = sequence(part)
        hidden = model.encoder(ids, segment_ids=segments).hidden[0]
        return (hidden.mean(0) if pooling == "mean" else hidden[0]).numpy()

    (result,) = predictor.run([predictor.job("embed", text=TEXT, pooling=pooling)])
    np.testing.assert_allclose(result.vector, vector(TEXT), rtol=1e-4, atol=1e-5)
    assert (result.tokens, result.windows) == (len(english().encode(TEXT)), 1)
    unit = predictor.embed(TEXT, pooling=pooling, normalize=True)
    np.testing.assert_allclose(unit, vector(TEXT) / np.linalg.norm(vector(TEXT)), rtol=1e-4, atol=1e-5)

    long = " ".join([TEXT] * 12)
    ids = np.array(english().encode(long))
    windows = -(-len(ids) // 46)  # 48 positions less [CLS] and [SEP]
    (result,) = predictor.run([predictor.job("embed", text=long, pooling=pooling)])
    assert result.windows == windows > 2
    expected = np.mean([vector(part) for part in np.array_split(ids, windows)], axis=0)
    np.testing.assert_allclose(result.vector, expected, rtol=1e-4, atol=1e-5)


def test_embeddings_are_arrays():
    predictor = predictor_of("encoder")
    one, many = predictor.embed(TEXT), predictor.embed([TEXT, "Ben slept."])
    assert (one.shape, one.dtype) == ((24,), np.float32)
    assert (many.shape, many.dtype) == ((2, 24), np.float32)
    np.testing.assert_allclose(many[0], one, rtol=1e-4, atol=1e-5)
    assert predictor.embed([]).shape == (0, 24)


@torch.inference_mode()
def test_classification_of_texts_and_pairs():
    model = small_model("classification", labels=LABELS)
    predictor = predictor_of("classification", labels=LABELS)
    for arguments in ((TEXT,), (TEXT, "Ben slept.")):
        ids, segments = sequence(*arguments)
        expected = model(ids, segment_ids=segments)[0].softmax(-1).numpy()
        result = predictor.classify(*arguments)
        assert list(result.probabilities) == [LABELS[i] for i in np.argsort(-expected)]
        np.testing.assert_allclose([result.probabilities[label] for label in LABELS], expected, rtol=1e-4)
        assert result.label == LABELS[int(expected.argmax())]
        assert result.labels == (result.label,)
        assert result.windows == 1


@torch.inference_mode()
def test_long_texts_are_the_mean_over_their_windows():
    model = small_model("classification", labels=LABELS)
    task = Task("mine", "classification", LABELS, max_length=32, pair=None)
    predictor = predictor_of("classification", task, labels=LABELS)
    long = " ".join([TEXT] * 7)
    ids = np.array(english().encode(long))
    logits = [model(s[0], segment_ids=s[1])[0].numpy() for s in map(sequence, np.array_split(ids, -(-len(ids) // 30)))]
    result = predictor.classify(long)
    assert result.windows == len(logits) > 2
    expected = torch.tensor(np.mean(logits, axis=0)).softmax(-1).numpy()
    np.testing.assert_allclose([result.probabilities[label] for label in LABELS], expected, rtol=1e-3)

    # A pair: the short text stays beside every window of the long one, on its side.
    short = english().encode("Ben slept.")
    windows = np.array_split(ids, -(-len(ids) // (29 - len(short))))
    long_first, short_first = [(window, short) for window in windows], [(short, window) for window in windows]
    for texts, parts in (((long, "Ben slept."), long_first), (("Ben slept.", long), short_first)):
        logits = [model(s[0], segment_ids=s[1])[0].numpy() for s in (sequence(*part) for part in parts)]
        expected = torch.tensor(np.mean(logits, axis=0)).softmax(-1).numpy()
        result = predictor.classify(*texts)
        np.testing.assert_allclose([result.probabilities[label] for label in LABELS], expected, rtol=1e-3)


@torch.inference_mode()
def test_multi_label_and_regression():
    ids, segments = sequence(TEXT)
    for problem, from_task in ((True, False), (False, True)):  # as config.json and as task.json say it
        changes = {"problem_type": "multi_label_classification"} if problem else {}
        task = Task("mine", "multi-label", LABELS) if from_task else None
        logits = small_model("classification", labels=LABELS, **changes)(ids, segment_ids=segments)[0]
        result = predictor_of("classification", task, labels=LABELS, **changes).classify(TEXT)
        expected = logits.sigmoid().numpy()
        np.testing.assert_allclose([result.probabilities[label] for label in LABELS], expected, rtol=1e-4)
        assert set(result.labels) == {label for label, p in zip(LABELS, expected, strict=True) if p >= 0.5}
    value = small_model("classification", problem_type="regression")(ids, segment_ids=segments)[0, 0]
    result = predictor_of("classification", problem_type="regression").classify(TEXT)
    assert result.value == pytest.approx(float(value), rel=1e-4)
    assert (result.label, result.probabilities) == (None, {})


@pytest.mark.parametrize("kind", ["classification", "multi-label", "regression"])
def test_a_model_of_pairs_asks_for_pairs_and_one_of_single_texts_refuses_them(kind):
    labels = () if kind == "regression" else LABELS
    changes = {"problem_type": "regression"} if kind == "regression" else {"labels": LABELS}
    if kind == "multi-label":
        changes["problem_type"] = "multi_label_classification"
    pairs = predictor_of("classification", Task("sts-b", kind, labels, pair=True), **changes)
    single = predictor_of("classification", Task("sst-2", kind, labels, pair=False), **changes)
    unknown = predictor_of("classification", **changes)  # a folder of transformers
    with pytest.raises(InputError, match=r"pair: missing; this model \(sts-b\) takes two texts"):
        pairs.classify(TEXT)
    with pytest.raises(InputError, match="input 0: pair: missing"):
        pairs.classify([TEXT, "Ben slept."])
    with pytest.raises(InputError, match=r"pair: this model \(sst-2\) takes one text"):
        single.classify(TEXT, "Ben slept.")
    assert pairs.classify(TEXT, "Ben slept.") == unknown.classify(TEXT, "Ben slept.")
    assert single.classify(TEXT) == unknown.classify(TEXT)


def test_regression_tells_its_scale():
    task = Task("sts-b", "regression", pair=True, scale=(0.0, 5.0))
    result = predictor_of("classification", task, problem_type="regression").classify(TEXT, "Ben slept.")
    assert result.scale == (0.0, 5.0)
    assert result.as_dict()["scale"] == [0.0, 5.0]
    assert predictor_of("classification", problem_type="regression").classify(TEXT).scale is None


@torch.inference_mode()
def test_attention_per_head_of_every_application():
    predictor = predictor_of("encoder")
    ids, segments = sequence("Ben slept.", TEXT)
    expected = small_model("encoder").encoder(ids, segment_ids=segments, output_attentions=True).attentions
    result = predictor.attention("Ben slept.", TEXT)
    assert result.weights.shape == (2, 3, ids.shape[1], ids.shape[1])
    np.testing.assert_allclose(result.weights, torch.cat(expected).numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.weights.sum(-1), 1, rtol=1e-5)
    assert result.pieces == tuple(english().piece(int(i)) for i in ids[0])
    assert result.segments == tuple(segments[0].tolist())
    assert result.left_out == 0
    cut = predictor.attention(TEXT * 20, max_tokens=16)
    assert len(cut.pieces) == 16
    assert cut.left_out == len(english().encode(TEXT * 20)) - 14


def test_bad_options():
    predictor = predictor_of("encoder")
    with pytest.raises(InputError, match="pooling: 'max' is not one of: mean, cls"):
        predictor.embed(TEXT, pooling="max")
    with pytest.raises(InputError, match="max_tokens"):
        predictor.attention(TEXT, max_tokens=3)
    with pytest.raises(InputError, match="pair: is empty"):
        predictor.attention(TEXT, "")
    with pytest.raises(InputError, match="no text that the vocabulary covers"):
        predictor.embed("\x01\x02")


MANY = [TEXT, "Ben slept.", " ".join([TEXT] * 12), "a", "It was May 2010, and the teacher walked to the cafe."]


@pytest.mark.parametrize(
    "options", [{}, {"pooling": "cls"}, {"normalize": True}, {"size": 5, "normalize": True}, {"depth": 1}]
)
def test_vectors_of_many_texts_are_those_of_each(options):
    """Of the same pass: bit for bit, also for texts of several windows."""
    predictor = predictor_of("encoder")
    job = predictor.many_job("embed", predictor.encode_texts("embed", MANY), **options)
    each = [predictor.job("embed", text=text, **options) for text in MANY]
    assert job.tokens == sum(one.tokens for one in each)
    predictor.run([job])
    for one, other in zip(job.result, predictor.run(each), strict=True):
        assert one.vector.dtype == np.float32
        np.testing.assert_array_equal(one.vector, other.vector)
        assert one.as_dict() == other.as_dict()
    np.testing.assert_array_equal(predictor.embed(MANY, **options), np.stack([one.vector for one in job.result]))


def test_labels_of_many_texts_are_those_of_each():
    task = Task("mine", "classification", LABELS, max_length=32, pair=False)
    predictor = predictor_of("classification", task, labels=LABELS)
    job = predictor.many_job("classify", predictor.encode_texts("classify", MANY))
    predictor.run([job])
    assert job.result == predictor.run([predictor.job("classify", text=text) for text in MANY])
    assert predictor.classify(MANY) == job.result
    assert predictor.classify([]) == []


def test_what_is_wrong_with_one_of_many_texts_is_said_of_it():
    predictor = predictor_of("encoder")
    good, empty, number, control = predictor.encode_texts("embed", ["a", " ", 3, "\x01"])
    assert good.tolist() == english().encode("a")
    for error, said in ((empty, "is empty"), (number, "expected a str, got int"), (control, "no text")):
        assert said in str(error)
    with pytest.raises(InputError, match="input 1: text: is empty"):
        predictor.embed(["a", ""])
    with pytest.raises(InputError, match="size: must be"):
        predictor.embed(["a", "b"], size=1000)
    pairs = predictor_of("classification", Task("mine", "classification", LABELS, pair=True), labels=LABELS)
    with pytest.raises(InputError, match="input 0: pair: missing"):
        pairs.classify(["a", "b"])
