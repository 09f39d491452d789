from __future__ import annotations

import json

import numpy as np
import pytest
from small_models import LABELS, predictor_of, small_model
from small_vocabularies import english

import litebert.remote
from litebert.errors import CheckpointError, ConfigError, InputError
from litebert.export.onnx_file import export_onnx
from litebert.model.config import load_config
from litebert.model.hub import load_model, save_model
from litebert.predict.ability import Result
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.task import Task, save_task
from litebert.text.tokenizer import Tokenizer

EVERYWHERE = ("embed", "similarity", "search", "attention")
CAN = {
    "encoder": (),
    "pretraining": ("fill_mask", "sentence_order", "coherence"),
    "masked-lm": ("fill_mask",),
    "sentence-order": ("sentence_order", "coherence"),
    "classification": ("classify",),
    "token-classification": ("tag",),
    "multiple-choice": ("choose",),
    "span": ("answer",),
    "answer": ("answer",),
}
ARGUMENTS = {
    "fill_mask": {"text": "anna [MASK]"},
    "sentence_order": {"a": "Anna slept.", "b": "Ben slept."},
    "coherence": {"text": "Anna slept. Ben slept. The rain fell."},
    "embed": {"text": "anna"},
    "classify": {"text": "anna"},
    "tag": {"text": "anna slept"},
    "answer": {"question": "who?", "context": "anna slept"},
    "choose": {"passage": "anna", "question": "who?", "options": ["anna", "ben"]},
    "similarity": {"a": "anna", "b": "good morning"},
    "search": {"query": "anna", "texts": ["good morning", "anna slept"]},
    "attention": {"text": "anna"},
}


def save(folder, head, task=None, **changes):
    save_model(small_model(head, **changes), folder)
    english().save(folder)
    if task is not None:
        save_task(task, folder)
    return folder


@pytest.mark.parametrize("head", CAN)
def test_abilities_of_every_head_and_their_json(head):
    predictor = predictor_of(head)
    assert set(predictor.abilities) == {*CAN[head], *EVERYWHERE}
    for ability in predictor.abilities:
        (result,) = predictor.run([predictor.job(ability, **ARGUMENTS[ability])])
        assert isinstance(result, Result)
        data = result.as_dict()
        assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize(
    ("ability", "command"),
    [
        ("fill_mask", "litebert pretrain"),
        ("classify", "litebert finetune --task classification"),
        ("tag", "litebert finetune --task token-classification"),
        ("answer", "litebert finetune --task question-answering"),
        ("choose", "litebert finetune --task multiple-choice"),
    ],
)
def test_what_a_model_cannot_do_names_the_command(ability, command):
    able = ", ".join(EVERYWHERE)
    with pytest.raises(InputError, match=rf"small-encoder: .* has no {ability}; it has {able}\. .*{command}"):
        getattr(predictor_of("encoder"), ability)(**ARGUMENTS[ability])


def test_unknown_abilities_and_arguments():
    predictor = predictor_of("encoder")
    with pytest.raises(InputError, match="did you mean 'embed'"):
        predictor.job("embedd", text="a")
    with pytest.raises(InputError, match="embed takes no 'poling'; did you mean 'pooling'"):
        predictor.job("embed", text="a", poling="mean")
    with pytest.raises(InputError, match="embed: missing 'text'; it takes text, pooling, normalize"):
        predictor.job("embed")


def test_many_inputs_come_back_in_order():
    predictor = predictor_of("pretraining", max_tokens=30)
    texts = [f"{'anna slept ' * (number * 7 % 11)}[MASK]" for number in range(11)]
    together = predictor.fill_mask(texts, top=2)
    for text, result in zip(texts, together, strict=True):
        alone = predictor.fill_mask(text, top=2)
        assert result.text == text
        assert [c.piece for c in result.masks[0].candidates] == [c.piece for c in alone.masks[0].candidates]
        np.testing.assert_allclose(
            [c.probability for c in result.masks[0].candidates],
            [c.probability for c in alone.masks[0].candidates],
            rtol=1e-4,
        )
    assert predictor.fill_mask([]) == []
    assert len(predictor.sentence_order("Anna slept.", ["Ben slept.", "The rain fell."])) == 2
    with pytest.raises(InputError, match="different lengths: a 1, b 2"):
        predictor.sentence_order(["a"], ["b", "c"])
    for text in (b"x", bytearray(b"x")):
        with pytest.raises(InputError, match=r"^text: expected a str, got byte.*; decode it first"):
            predictor.embed(text)
    with pytest.raises(InputError, match="input 1: text: is empty"):
        predictor.embed(["a", ""])


def test_jobs_of_all_abilities_run_together():
    predictor = predictor_of("pretraining")
    names = [*predictor.abilities, "fill_mask"]
    arguments = [*(ARGUMENTS[name] for name in predictor.abilities), {"text": "[MASK] [MASK]", "joint": True}]
    jobs = [predictor.job(name, **a) for name, a in zip(names, arguments, strict=True)]
    assert all(job.tokens == sum(map(len, job._requests)) > 0 for job in jobs[:-1]), "the joint fill has later passes"
    together = predictor.run(jobs)
    for name, a, result in zip(names, arguments, together, strict=True):
        (alone,) = predictor.run([predictor.job(name, **a)])
        assert flat(result.as_dict()) == pytest.approx(flat(alone.as_dict()), rel=1e-3, abs=1e-5)


def test_jobs_may_be_spread_over_passes():
    """Whatever sequences run beside a job's, and in however many passes, its result is the same up to rounding."""
    predictor = predictor_of("pretraining")
    text = "Anna slept. Ben read the old book. " * 12
    calls = [
        ("embed", {"text": text}),
        ("fill_mask", {"text": "anna [MASK] the [MASK]", "joint": True, "top": 3}),
        ("coherence", {"text": text}),
        ("embed", {"text": "anna"}),
    ]
    jobs = [predictor.job(name, **arguments) for name, arguments in calls]
    assert len(jobs[0].lengths) > 1
    passes = 0
    while active := [job for job in jobs if job.result is None]:
        waiting = [len(job.lengths) for job in active]
        predictor.run_pass([(job, 1 + passes % 2) for job in active])
        assert all(job.result or job.lengths for job in active)
        assert [len(job.lengths) for job in active] != waiting
        passes += 1
    assert passes > 3
    for job, (name, arguments) in zip(jobs, calls, strict=True):
        (alone,) = predictor.run([predictor.job(name, **arguments)])
        assert flat(job.result.as_dict()) == pytest.approx(flat(alone.as_dict()), rel=1e-3, abs=1e-5)


def test_a_job_spread_over_passes_keeps_only_its_own_outputs():
    predictor = predictor_of("pretraining")
    job, other = predictor.job("embed", text="anna slept. " * 30), predictor.job("embed", text="ben")
    predictor.run_pass([(job, 1), (other, 1)])
    assert job.result is None
    assert all(value.base is None for output in job._outputs for value in output.values())


def flat(data):
    """All numbers of nested data in order."""
    if isinstance(data, dict):
        return [n for value in data.values() for n in flat(value)]
    if isinstance(data, list):
        return [n for value in data for n in flat(value)]
    return [data] if isinstance(data, (int, float)) else []


def test_a_job_that_fails_fails_alone(monkeypatch):
    """A sequence that the runtime cannot take, and a job whose own code breaks, leave the others unharmed."""
    predictor = predictor_of("pretraining")
    good, too_long, broken = (predictor.job("embed", text="anna slept") for _ in range(3))
    object.__setattr__(too_long._requests[0], "ids", np.full(7, 10**6, np.int32))
    object.__setattr__(too_long._requests[0], "segments", np.zeros(7, np.int8))

    def failing():
        yield [good._requests[0]]
        raise ZeroDivisionError

    broken._steps = failing()
    next(broken._steps)
    results = predictor.run([good, too_long, broken])
    assert isinstance(results[0], Result)
    assert isinstance(results[1], InputError)
    assert isinstance(results[2], ZeroDivisionError)
    np.testing.assert_allclose(results[0].vector, predictor.embed("anna slept"), rtol=1e-5)


def test_outputs_are_held_within_bounds(monkeypatch):
    """Many masks do not hold their logits all at once."""
    monkeypatch.setattr("litebert.predict.job.MOST_NUMBERS", 3 * (english().vocab_size + 8 * 4))
    predictor = predictor_of("pretraining")
    sizes = []
    run = predictor.runtime.run
    monkeypatch.setattr(predictor.runtime, "run", lambda requests: sizes.append(len(requests)) or run(requests))
    results = predictor.fill_mask(["a [MASK]"] * 10)
    assert len(results) == 10
    assert max(sizes) <= 3


def test_a_folder_knows_its_task(tmp_path):
    labels = ("sad", "glad")
    task = Task("mine", "classification", labels, max_length=16)
    folder = save(tmp_path / "model", "classification", task, labels=labels)
    predictor = Predictor(folder, device="cpu", threads=1)
    assert predictor.name == str(folder)
    assert predictor.task == task
    assert set(predictor.classify("anna slept").probabilities) == set(labels)
    assert predictor.classify("anna slept " * 10).windows > 1


@pytest.mark.parametrize(
    ("head", "changes", "kind", "labels"),
    [
        ("classification", {}, "classification", ("LABEL_0", "LABEL_1")),
        ("classification", {"labels": ("a", "b", "c")}, "classification", ("a", "b", "c")),
        ("classification", {"labels": ("score",), "problem_type": "regression"}, "regression", ()),
        ("token-classification", {"labels": LABELS}, "token-classification", LABELS),
        ("span", {}, "question-answering", ()),
        ("answer", {}, "question-answering", ()),
    ],
)
def test_a_folder_of_transformers_says_it_by_its_config(tmp_path, head, changes, kind, labels):
    predictor = Predictor(save(tmp_path / "model", head, **changes), device="cpu", threads=1)
    assert (predictor.task.kind, predictor.task.labels) == (kind, labels)


def test_the_runtime_is_what_the_folder_has(tmp_path):
    folder = save(tmp_path / "model", "encoder")
    export_onnx(folder, tmp_path / "exported")
    in_torch = Predictor(folder, device="cpu", threads=1)
    in_onnx = Predictor(tmp_path / "exported", threads=1)
    assert isinstance(in_torch.runtime, TorchRuntime)
    assert isinstance(in_onnx.runtime, OnnxRuntime)
    np.testing.assert_allclose(in_onnx.embed("anna"), in_torch.embed("anna"), rtol=1e-3, atol=1e-5)


def test_wrong_models():
    with pytest.raises(CheckpointError, match="no such folder"):
        Predictor("/no/such/folder")
    for wrong in ({"max_tokens": -1}, {"max_tokens": "3"}, {"threads": -1}, {"threads": "3"}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}: must be a whole number >="):
            Predictor("x", **wrong)


def test_tokenizer_and_model_must_belong_together(tmp_path):
    save_model(small_model("encoder", vocab_size=50), tmp_path / "model")
    english().save(tmp_path / "model")
    with pytest.raises(ConfigError, match="do not match"):
        Predictor(tmp_path / "model", device="cpu", threads=1)
    with pytest.raises(ConfigError, match="runtime: 'tf' is not one of"):
        Predictor(save(tmp_path / "fine", "encoder"), runtime="tf")


def test_task_and_model_must_belong_together(tmp_path):
    save_model(small_model("classification", labels=("a", "b", "c")), tmp_path)
    english().save(tmp_path)
    save_task(Task("t", "classification", ("a", "b")), tmp_path)
    with pytest.raises(CheckpointError, match="names 2 labels, the model has 3 outputs"):
        Predictor(tmp_path)


def test_default_is_the_package_s_model(tmp_path, monkeypatch):
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", save(tmp_path / "default_model", "pretraining"))
    assert load_model("default").head == "pretraining"
    assert load_config("default").vocab_size == english().vocab_size
    assert Tokenizer.load("default").fingerprint == english().fingerprint
    predictor = Predictor(device="cpu", threads=1)
    assert predictor.name == "default"
    assert predictor.fill_mask("anna [MASK]").masks


def test_without_a_default_model_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", tmp_path / "nothing")
    for load in (load_model, Tokenizer.load, Predictor):
        with pytest.raises(CheckpointError, match=r"contains no model.* litebert quickstart"):
            load("default")


def test_megabytes_of_text():
    """A long text costs time and no more: masks are read around, and embeddings and tags by windows."""
    text = "Anna read the old book. " * 4000
    predictor = predictor_of("pretraining")
    (result,) = predictor.run([predictor.job("embed", text=text)])
    assert result.windows > 400
    assert len(predictor.fill_mask(text + "[MASK]").masks) == 1
    assert 0 < predictor.sentence_order(text, text).probability < 1


def test_a_model_is_asked_in_sequences_as_long_as_it_was_trained_on(tmp_path):
    """Positions that no training has seen are random, so a long text is cut into shorter windows."""
    folder = save(tmp_path / "short", "encoder")
    whole = Predictor(folder, device="cpu", threads=1)
    english().save(folder, max_length=12)
    short = Predictor(folder, device="cpu", threads=1)
    assert (whole.tokenizer.max_length, short.tokenizer.max_length) == (None, 12)
    text = "anna bought bread and milk in the town. " * 3
    lengths = {
        predictor: [len(part) for part in predictor.job("embed", text=text)._requests] for predictor in (whole, short)
    }
    assert max(lengths[whole]) > 12
    assert max(lengths[short]) <= 12
    assert len(lengths[short]) > len(lengths[whole])
