"""Depth as a dial in the exported page: Python's answers and depths, by the engine in Node and in a real Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from exported_pages import MODULES, WEB, assert_close, hosting, need_modules
from exported_pages import ask as browser_ask
from small_models import LABELS, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.export.web import FILES, describe_model, export_web
from litebert.model.hub import load_model, save_model
from litebert.predict.exits import ExitRule, Gate, save_rule
from litebert.predict.predictor import Predictor
from litebert.tasks.decode import softmax
from litebert.tasks.task import Task, save_task

DEEP = {"num_hidden_layers": 5, "exits": (1, 2, 3, 5), "hidden_size": 24}
NAMES = ("bad", "good", "so-so")
CONTEXTS = ["🙂 Ben read — the naïve café. Anna slept.", "the old dog runs in the park and a man sleeps.", "rain."]
TEXTS = ["Anna walked to the café.", "the quick fox", "dogs", "a man sleeps and others run in the park", "we read."]
# Kind -> the head, its labels, the task, and the requests that its answers are compared on.
KINDS = {
    "classes": ("classification", {"labels": NAMES}, Task("t", "classification", NAMES), TEXTS),
    "labels": (
        "classification",
        {"labels": NAMES, "problem_type": "multi_label_classification", "pooling": "mean"},
        Task("t", "multi-label", NAMES),
        TEXTS,
    ),
    "number": (
        "classification",
        {"labels": ("score",), "problem_type": "regression"},
        Task("t", "regression", scale=(0.0, 5.0)),
        TEXTS,
    ),
    "tags": ("token-classification", {"labels": LABELS}, Task("ner", "token-classification", labels=LABELS), TEXTS),
    "span": ("span", {}, Task("squad", "question-answering", max_length=48), CONTEXTS),
    "choice": ("multiple-choice", {}, Task("race", "multiple-choice", max_length=48), TEXTS),
}


def body_of(kind: str, text: str) -> tuple[str, dict]:
    if kind == "tags":
        return "tag", {"text": text}
    if kind == "span":
        return "answer", {"question": "Who slept?", "context": text, "top": 3}
    if kind == "choice":
        return "choose", {"passage": text, "question": "_ slept.", "options": ["anna", "a cat or two", "ben"]}
    return "classify", {"text": text}


def rules_of(kind: str) -> dict[str, ExitRule]:
    """Rules under which these texts stop at several depths."""
    generator = np.random.default_rng(3)
    shapes = ((3, DEEP["hidden_size"]), (3, 3), (3,))
    gate = Gate(*(generator.normal(0, 0.6, shape).astype(np.float32) for shape in shapes))
    within = 0.8 if kind == "number" else 0.0
    found = {
        "patience": ExitRule("patience", within, patience=1),
        "after three": ExitRule("patience", 2 * within, patience=1, least=3),
        "gate": ExitRule("gate", 0.5, gate=gate),
    }
    if kind != "number":
        threshold = {"classes": 0.7, "labels": 0.55, "tags": 0.45, "span": 0.1, "choice": 0.6}[kind]
        found["confidence"] = ExitRule("confidence", threshold)
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page for each kind of answer, made on first use: its model folder, and its own."""
    need_modules()
    root = tmp_path_factory.mktemp("exits")

    def make(kind: str, rule: ExitRule | None = None, **changes) -> tuple[Path, Path]:
        name = f"{kind} {'plain' if rule is None else rule.by} {changes}"
        source, target = root / f"{name} source", root / name
        if target.exists():
            return source, target
        head, more, task, _ = KINDS.get(kind, (kind, {}, None, ()))
        save_model(small_model(head, **{**DEEP, **more, **changes}), source)
        english().save(source)
        if task is not None:
            save_task(task, source)
        if rule is not None:
            save_rule(rule, source, {})
        export_web(source, target, page=True, runtime=MODULES)
        return source, target

    return make


def ask(folder: Path, cases: list, scratch: Path, form: str = "fp32", about: Path | None = None) -> list[dict]:
    about = about or folder / "page.json"
    (scratch / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    command = ["node", str(WEB / "ask.mjs"), str(folder), FILES[form], str(scratch / "cases.json"), str(about)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_each_depth_answers_as_in_python(pages, tmp_path, kind):
    source, folder = pages(kind)
    predictor = Predictor(source, device="cpu", threads=1)
    bodies = [body_of(kind, text) for text in KINDS[kind][3]]
    cases = [(ability, {**body, "depth": depth}) for depth in (None, 1, 2, 3, 5) for ability, body in bodies]
    for (ability, body), found in zip(cases, ask(folder, cases, tmp_path), strict=True):
        assert_close(found["results"][0], getattr(predictor, ability)(**body).as_dict(), f"{ability} {body}")
        sequences = len(body.get("options", [0]))
        assert found["applied"] == (body["depth"] or 5) * sequences  # layers that are not needed are not applied


@pytest.mark.parametrize("kind", KINDS)
def test_each_rule_stops_where_it_does_in_python(pages, tmp_path, kind):
    source, folder = pages(kind)
    source = shutil.copytree(source, tmp_path / "source")
    about = json.loads((folder / "page.json").read_text(encoding="utf-8"))
    bodies = [body_of(kind, text) for text in KINDS[kind][3]]
    cases = [(ability, {**body, "depth": "auto"}) for ability, body in bodies]
    reached = set()
    for name, rule in rules_of(kind).items():
        save_rule(rule, source, {})
        about |= describe_model(source, "m", load_model(source))
        (tmp_path / "page.json").write_text(json.dumps(about), encoding="utf-8")
        predictor = Predictor(source, device="cpu", threads=1)
        for (ability, body), found in zip(
            cases, ask(folder, cases, tmp_path, about=tmp_path / "page.json"), strict=True
        ):
            expected = getattr(predictor, ability)(**body)
            assert_close(found["results"][0], expected.as_dict(), f"{name} {ability} {body}")
            assert found["applied"] == expected.depth * len(body.get("options", [0]))
            reached.add(expected.depth)
    assert len(reached) >= 3, reached


@pytest.mark.parametrize("exits", [(), (1, 2, 3, 5)])
def test_masks_order_vectors_and_similarity_at_any_depth_with_or_without_exits(pages, tmp_path, exits):
    source, folder = pages("pretraining", exits=exits)
    predictor = Predictor(source, device="cpu", threads=1)
    bodies = {
        "fill_mask": {"text": "anna [MASK] to the[MASK]café.", "top": 6},
        "sentence_order": {"a": "Anna slept. Ben read.", "b": "The rain fell.", "symmetric": True},
        "coherence": {"text": "Anna slept. Ben read the old book. The rain fell."},
        "attention": {"text": "Anna slept.", "pair": "Ben read."},
    }
    cases = [(ability, {**body, "depth": depth}) for depth in (1, 4, None) for ability, body in bodies.items()]
    for (ability, body), found in zip(cases, ask(folder, cases, tmp_path), strict=True):
        assert_close(found["results"][0], getattr(predictor, ability)(**body).as_dict(), f"{ability} {body}")
    texts = ["Anna slept.", "the old dog"]
    (found,) = ask(folder, [("embed", {"text": texts, "normalize": True, "depth": 2})], tmp_path)
    vectors = predictor.embed(texts, normalize=True, depth=2)
    np.testing.assert_allclose([each["vector"] for each in found["results"]], vectors, atol=1e-4)
    assert [each["depth"] for each in found["results"]] == [2, 2]


def test_blocks_in_groups_stop_after_whole_layers(pages, tmp_path):
    source, folder = pages("classes", num_hidden_layers=4, exits=(1, 3, 4), num_hidden_groups=2, inner_group_num=2)
    predictor = Predictor(source, device="cpu", threads=1)
    cases = [("classify", {"text": TEXTS[0], "depth": depth}) for depth in (1, 3, 4)]
    for (ability, body), found in zip(cases, ask(folder, cases, tmp_path), strict=True):
        assert_close(found["results"][0], getattr(predictor, ability)(**body).as_dict(), str(body))


@pytest.mark.parametrize("form", ["fp32", "int8", "q4i8"])
def test_the_files_give_what_the_exits_say(pages, tmp_path, form):
    """The heads of the exits in each form, by ONNX Runtime: the engine takes its arrays from these files."""
    _, folder = pages("classes")
    tokenizer = english()
    ids = np.array([[tokenizer.cls_id, *tokenizer.encode(TEXTS[0]), tokenizer.sep_id]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    session = onnxruntime.InferenceSession(str(folder / FILES[form]))
    cases = [("classify", {"text": TEXTS[0], "depth": depth}) for depth in (1, 2, 3)]
    for (_, body), found in zip(cases, ask(folder, cases, tmp_path, form), strict=True):
        expected = softmax(session.run([f"logits_{body['depth']}"], feeds)[0][0])
        said = found["results"][0]["probabilities"]
        assert [said[name] for name in NAMES] == pytest.approx(expected.tolist(), abs=1e-4 if form == "fp32" else 0.03)


def test_a_depth_that_is_not_there_is_refused_as_in_python(pages, tmp_path):
    source, folder = pages("classes")
    predictor = Predictor(source, device="cpu", threads=1)
    for ability, depth, words in (
        ("classify", 4, "depth: this model was not trained to answer at depth 4; it has exits at 1, 2, 3, 5"),
        ("classify", 6, "depth: must be between 1 and 5, the model's own; got 6"),
        ("embed", 0, "depth: must be between 1 and 5, the model's own; got 0"),
        ("classify", "auto", "has no rule for auto yet"),
        ("embed", "auto", "depth: auto is for what a trained head answers"),
    ):
        (found,) = ask(folder, [(ability, {"text": "dogs", "depth": depth})], tmp_path)
        assert words in found["refused"]
        with pytest.raises(InputError) as refused:
            predictor.job(ability, text="dogs", depth=depth)
        if depth != 0 and (ability, depth) != ("embed", "auto"):  # checked before, as a parameter
            assert words in str(refused.value)


def test_a_page_with_exits_runs_on_the_engine(pages):
    """A graph on WebGPU has one depth."""
    for changes, devices in (({}, {"wasm"}), ({"exits": ()}, {"wasm", "webgpu"})):
        _, folder = pages("classes", **changes)
        assert set(json.loads((folder / "page.json").read_text(encoding="utf-8"))["models"]) == devices


# ---------------------------------------------------------------------------------------------------------------------
# In a browser


def test_the_reader_turns_the_dial(pages, open_page):
    rule = rules_of("classes")["confidence"]
    source, folder = pages("classes", rule)
    predictor = Predictor(source, device="cpu", threads=1)
    with hosting(folder) as address:
        page = open_page(f"{address}/?precision=fp32", wait="#classify .meta")
        select = page.locator("#classify-depth")
        offered = select.locator("option").all_inner_texts()
        assert offered == ["All 5 layers", "3 layers", "2 layers", "1 layer", "As each text needs"]
        assert "all 5 layers" in page.inner_text("#classify .meta")
        for text in TEXTS:
            for value in ("3", "auto", "5"):
                select.select_option(value)
                page.fill("#classify-text", text)
                page.click("#classify .go")
                page.wait_for_selector("#classify .result:not([aria-busy])")
                expected = predictor.classify(text, depth=value if value == "auto" else int(value))
                words = "all 5 layers" if expected.depth == 5 else f"{expected.depth} of 5 layers"
                assert page.inner_text("#classify .meta span:nth-child(3)") == words, (text, value)
                assert page.inner_text("#classify .big") == expected.label
        found = browser_ask(page, "classify", {"text": TEXTS[0], "pair": None, "depth": "auto"})[0]
        assert_close(found, predictor.classify(TEXTS[0], depth="auto").as_dict())
        page.click("#tab-embed")
        page.wait_for_selector("#embed .meta")
        assert "As each text needs" not in page.locator("#embed-depth option").all_inner_texts()
        page.click("#tab-attention")
        page.wait_for_selector("#attention .meta")
        assert page.locator("#attention-depth").count() == 0  # it draws every application anyway


def test_a_page_without_exits_has_no_dial(pages, open_page):
    _, folder = pages("classes", exits=())
    with hosting(folder) as address:
        page = open_page(address, wait="#classify .meta")
        assert page.is_hidden("#classify-depth")
        assert "layers" not in page.inner_text("#classify .meta")


def test_onnxruntime_web_has_no_dial_and_refuses_other_depths(pages, open_page):
    from playwright.sync_api import Error

    _, folder = pages("classes")
    with hosting(folder) as address:
        page = open_page(f"{address}/?device=ort&precision=fp32", wait="#classify .meta")
        assert page.is_hidden("#classify-depth")
        with pytest.raises(Error, match="onnxruntime-web answers only at full depth"):
            browser_ask(page, "classify", {"text": "dogs", "pair": None, "depth": 2})
        assert browser_ask(page, "classify", {"text": "dogs", "pair": None, "depth": 5})[0]["depth"] == 5
