"""The adapters in the package: which one answers, that each is a plain adapter folder, and that it knows its base."""

from __future__ import annotations

import json
import shutil
import threading

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import litebert.remote
from litebert.errors import CheckpointError, InputError
from litebert.finetuning.evaluate import evaluate_task
from litebert.predict.abilities import SHIPPED, SHIPPED_PAIR
from litebert.predict.predictor import Predictor
from litebert.remote import DEFAULT_FOLDER, find_folder, shipped_adapters
from litebert.tasks.task import load_task

NAMES = ["entailment", "questions", "sentiment", "similarity"]
TEXT, OTHER = "a warm and funny film.", "someone makes people laugh."
CONTEXT = "anna lives in oslo. her brother ben lives in rome."


@pytest.fixture(scope="module")
def default():
    return Predictor(device="cpu", threads=1)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The same model as a folder of the user's own."""
    folder = tmp_path_factory.mktemp("own") / "model"
    shutil.copytree(DEFAULT_FOLDER, folder, ignore=shutil.ignore_patterns("adapters"))
    return Predictor(folder, device="cpu", threads=1)


def alone(name):
    return Predictor(f"default:{name}", device="cpu", threads=1)


def test_the_package_has_four_small_adapters():
    found = shipped_adapters()
    assert list(found) == NAMES == sorted({*SHIPPED.values(), SHIPPED_PAIR})
    labels = {name: load_task(folder).labels for name, folder in found.items()}
    assert labels["sentiment"] == ("negative", "positive")
    assert labels["entailment"] == ("entailment", "neutral", "contradiction")
    kinds = {name: load_task(folder).kind for name, folder in found.items()}
    assert kinds == dict(
        zip(NAMES, ("classification", "question-answering", "classification", "similarity"), strict=True)
    )
    sizes = {}
    for name, folder in found.items():
        files = {"README.md", "adapter_config.json", "adapter_model.safetensors", "task.json"}
        assert {path.name for path in folder.iterdir()} == files
        sizes[name] = sum(path.stat().st_size for path in folder.iterdir())
        assert {tensor.dtype for tensor in load_file(folder / "adapter_model.safetensors").values()} == {torch.float16}
        assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "default"
        card = (folder / "README.md").read_text(encoding="utf-8")
        for part in (f"# default:{name}", "## Data", "licence", "## Training", "## Scores", "## Limits"):
            assert part in card, (name, part)
    assert max(sizes.values()) < 1e6
    assert sum(sizes.values()) < 3e6


def test_every_ability_is_answered_by_its_adapter(default):
    assert default.classify(TEXT).probabilities == pytest.approx(
        alone("sentiment").classify(TEXT).probabilities, abs=1e-5
    )
    expected = alone("entailment").classify(TEXT, OTHER).probabilities
    assert default.classify(TEXT, OTHER).probabilities == pytest.approx(expected, abs=1e-5)
    assert set(expected) == {"entailment", "neutral", "contradiction"}
    found, wanted = (each.answer("who lives in oslo?", CONTEXT) for each in (default, alone("questions")))
    assert (found.text, found.probability) == (wanted.text, pytest.approx(wanted.probability, abs=1e-4))
    vectors, wanted = (each.embed([TEXT, OTHER]) for each in (default, alone("similarity")))
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)  # as it was trained
    cosine = pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert default.similarity(TEXT, OTHER).score == cosine
    assert default.search(TEXT, [CONTEXT, OTHER]).hits[0].text in (CONTEXT, OTHER)
    assert {hit.index: hit.score for hit in default.search(TEXT, [CONTEXT, OTHER], lexical=0).hits}[1] == cosine
    assert set(default.adapters) == set(NAMES)


def test_they_share_one_pass(default):
    jobs = [
        default.job("classify", text=TEXT),
        default.job("classify", text=TEXT, pair=OTHER),
        default.job("embed", text=TEXT),
        default.job("fill_mask", text="a [MASK] day"),
    ]
    passes = []
    run = default.runtime._start_packed
    default.runtime._start_packed = lambda requests: passes.append(len(requests)) or run(requests)
    try:
        default.run(jobs)
    finally:
        del default.runtime._start_packed
    assert passes == [4]


def test_what_the_model_itself_can_is_its_own(bare):
    default = Predictor(device="cpu", threads=1)
    assert default.fill_mask("a [MASK] day").masks == bare.fill_mask("a [MASK] day").masks
    assert default.sentence_order(TEXT, OTHER).probability == bare.sentence_order(TEXT, OTHER).probability
    assert default.adapters == {}, "nothing is loaded before it is needed"


def test_a_model_of_the_users_own_stays_as_it_is(bare):
    assert bare.shipped == {}
    assert "classify" not in bare.abilities
    vector = bare.embed(TEXT)
    assert np.linalg.norm(vector) > 2  # the mean state, not of length 1
    assert not np.allclose(vector / np.linalg.norm(vector), Predictor(device="cpu").embed(TEXT), atol=1e-3)
    np.testing.assert_array_equal(vector, Predictor(DEFAULT_FOLDER, device="cpu", threads=1).embed(TEXT))


def test_vectors_of_less_depth_have_the_adapter_too(default):
    shallow = default.embed(TEXT, depth=3)
    np.testing.assert_allclose(shallow, alone("similarity").embed(TEXT, depth=3), atol=1e-5)
    assert not np.allclose(shallow, default.embed(TEXT), atol=1e-3)
    np.testing.assert_allclose(Predictor(device="cpu", depth=3).embed(TEXT), shallow, atol=1e-5)
    with pytest.raises(InputError, match="depth"):
        default.classify(TEXT, depth=3)


def test_an_adapter_of_the_same_name_takes_its_place(default):
    own = Predictor(device="cpu", threads=1)
    own.add_adapter("sentiment", find_folder("default:entailment"))
    assert set(own.classify(TEXT, OTHER).probabilities) == {"entailment", "neutral", "contradiction"}
    with pytest.raises(InputError, match="takes two texts"):
        own.classify(TEXT)
    own.remove_adapter("sentiment")
    assert "classify" not in own.abilities
    with pytest.raises(InputError, match="has no classify"):
        own.classify(TEXT)
    own.add_adapter("sentiment", "default:sentiment")
    assert set(own.classify(TEXT).probabilities) == {"negative", "positive"}, "its place is taken again"


def test_threads_load_it_once():
    predictor = Predictor(device="cpu", threads=1)
    found = []
    work = [threading.Thread(target=lambda: found.append(predictor.classify(TEXT).probabilities)) for _ in range(4)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(found) == 4
    assert all(each == pytest.approx(found[0], abs=1e-6) for each in found)


def test_other_weights_are_refused(tmp_path, monkeypatch):
    folder = tmp_path / "other"
    shutil.copytree(DEFAULT_FOLDER, folder)
    weights = load_file(folder / "model.safetensors")
    name = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight"
    weights[name][0, 0] += 0.01
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    sentence = (
        "an adapter of another base model: it was trained on other weights than this model's; use it with its own"
    )
    with pytest.raises(CheckpointError, match=sentence):
        Predictor(folder, device="cpu").add_adapter("sentiment", find_folder("default:sentiment"))
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", folder)
    with pytest.raises(CheckpointError, match=sentence):
        Predictor("default:sentiment", device="cpu")
    with pytest.raises(CheckpointError, match=sentence):
        Predictor(device="cpu").classify(TEXT)


def test_the_fingerprint_is_of_half_precision(tmp_path):
    """The package's model is stored in fp16; the adapters were trained on the same weights before that."""
    folder = find_folder("default:sentiment")
    model = litebert.load_model("default")
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.mul_(1 + 1e-5)
    litebert.save_model(model, tmp_path / "fp32")
    litebert.Tokenizer.load(DEFAULT_FOLDER).save(tmp_path / "fp32")
    Predictor(tmp_path / "fp32", device="cpu").add_adapter("sentiment", folder)
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        assert len(file.metadata()["litebert_base"]) == 64


def test_peft_opens_them():
    classes = transformers.AutoModelForSequenceClassification, transformers.AutoModel
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEFAULT_FOLDER)
    inputs = tokenizer(TEXT, return_tensors="pt")
    folder = find_folder("default:sentiment")
    opened = peft.PeftModel.from_pretrained(classes[0].from_pretrained(DEFAULT_FOLDER, num_labels=2), folder).eval()
    with torch.no_grad():
        found = opened(**inputs).logits.softmax(-1)[0].tolist()
    expected = alone("sentiment").classify(TEXT).probabilities
    assert found == pytest.approx([expected["negative"], expected["positive"]], abs=1e-5)
    folder = find_folder("default:similarity")
    opened = peft.PeftModel.from_pretrained(classes[1].from_pretrained(DEFAULT_FOLDER), folder).eval()
    with torch.no_grad():
        states = opened(**inputs).last_hidden_state[0].mean(0)
    np.testing.assert_allclose(states / states.norm(), alone("similarity").embed(TEXT), atol=1e-5)


def test_the_command_line_says_which(cli):
    for words, model in (
        (["classify", TEXT], "default:sentiment"),
        (["classify", TEXT, "--pair", OTHER], "default:entailment"),
        (["answer", "who lives in oslo?", CONTEXT], "default:questions"),
        (["similarity", TEXT, OTHER], "default:similarity"),
    ):
        shown = cli("predict", *words, "--json", "--device", "cpu", "--threads", 1)
        assert (shown.code, shown.err.strip()) == (0, f"model: {model}"), shown
        named = cli("predict", *words, "--json", "--model", model, "--device", "cpu", "--threads", 1)
        assert (named.out, named.err) == (shown.out, ""), "who names a model is not told"
    assert "model:" not in cli("predict", "fill-mask", "a [MASK] day", "--device", "cpu").err
    wrong = cli("predict", "classify", TEXT, "--model", "default:sentimant")
    assert wrong.code == 2
    assert "default:sentimant: no such adapter in this package; it has default:entailment, default:qu" in wrong.err


def test_they_are_scored_like_models(tmp_path):
    rows = tmp_path / "dev.csv"
    rows.write_text("text,label\na warm and funny film.,positive\na dull film.,negative\n", encoding="utf-8")
    scored = evaluate_task(["default:sentiment"], task="classification", data=rows, device="cpu")
    said = [prediction.value for prediction in scored[0].evaluations[0].predictions]
    expected = alone("sentiment").classify(["a warm and funny film.", "a dull film."])
    assert [("negative", "positive")[value] for value in said] == [each.label for each in expected]


def test_where_a_model_folder_is_needed_an_adapter_is_named(cli, tmp_path):
    files = ["--train", tmp_path / "a.csv", "--dev", tmp_path / "a.csv"]
    (tmp_path / "a.csv").write_text("text,label\na,x\nb,y\n")
    shown = cli("finetune", "--task", "classification", *files, "--model", "default:sentiment", "--out", tmp_path / "r")
    assert shown.code == 2
    assert "it is an adapter: merge it with its model first (litebert adapter merge)" in shown.err
