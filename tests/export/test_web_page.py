"""The exported page in a real Chromium: Python's answers, troubles in words, and no network after the first load."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from exported_pages import MODULES, ask, assert_close, hosting, need_modules
from small_models import LABELS, predictor_of, small_model
from small_vocabularies import english

from litebert.errors import ConfigError
from litebert.export.web import FILES, ON_PAGE, RUNTIME, collect_runtime, export_web
from litebert.model.hub import save_model
from litebert.page import FOLDER as PAGE
from litebert.serve.static import serve_static
from litebert.tasks.decode import softmax
from litebert.tasks.task import Task, save_task

HEADS = {
    "pretraining": ({}, None),
    "classification": (dict(labels=("bad", "good", "so-so")), Task("mood", "classification", ("bad", "good", "so-so"))),
    "token-classification": (dict(labels=LABELS), Task("ner", "token-classification", labels=LABELS)),
    "span": ({}, Task("squad", "question-answering", max_length=48)),
    "multiple-choice": ({}, Task("race", "multiple-choice", max_length=48)),
}
TEXT = "Anna walked to the café, and her brother slept."


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A page for every head."""
    need_modules()
    root = tmp_path_factory.mktemp("pages")
    for head, (changes, task) in HEADS.items():
        source = root / f"source-{head}"
        save_model(small_model(head, **changes), source)
        english().save(source)
        if task is not None:
            save_task(task, source)
        export_web(source, root / head, page=True, runtime=MODULES)
    return root


@pytest.fixture(scope="module")
def host(folders):
    with hosting(folders) as address:
        yield address


BODIES = {
    "fill_mask": ("pretraining", {"text": "👩‍👩‍👧 anna [MASK] to [CLS] the[MASK]café.", "top": 6}),
    "sentence_order": ("pretraining", {"a": "Anna slept. Ben read.", "b": "The rain fell.", "symmetric": True}),
    "coherence": ("pretraining", {"text": "Anna slept. Ben read the old book. The rain fell."}),
    "embed": ("pretraining", {"text": ["Anna slept.", "naïve Zoë  said\tgood\u00a0morning"], "normalize": True}),
    "attention": ("pretraining", {"text": "Anna slept.", "pair": "Ben read."}),
    "classify": ("classification", {"text": "[MASK] anna slept.", "pair": None}),
    "tag": ("token-classification", {"text": "👍🏽 Anna Berg didn't walk to the café in Oslo, 我们."}),
    "answer": (
        "span",
        {"question": "Who slept?", "context": "🙂 Ben read — the naïve ﬁne café. Anna slept.", "top": 4},
    ),
    "choose": ("multiple-choice", {"passage": TEXT, "question": "_ slept.", "options": ["anna", "ben", "a cat"]}),
}


@pytest.mark.parametrize("head", HEADS)
def test_answers_are_those_of_python(folders, host, open_page, head):
    changes, task = HEADS[head]
    predictor = predictor_of(head, **changes) if task is None else None
    if predictor is None:
        from litebert.predict.predictor import Predictor

        predictor = Predictor(folders / f"source-{head}", device="cpu", threads=1)
    page = open_page(f"{host}/{head}/?precision=fp32")
    abilities = [name for name, (of, _) in BODIES.items() if of == head]
    assert abilities
    for ability in abilities:
        body = BODIES[ability][1]
        if ability == "embed":
            vectors = predictor.embed(body["text"], normalize=True)
            found = ask(page, ability, body)
            np.testing.assert_allclose([each["vector"] for each in found], vectors, atol=1e-4)
            continue
        expected = getattr(predictor, ability)(**{k: v for k, v in body.items() if v is not None})
        assert_close(ask(page, ability, body)[0], expected.as_dict(), ability)


def test_the_states_are_those_between_the_applications(host, open_page):
    import torch

    page = open_page(f"{host}/pretraining/?precision=fp32")
    found = ask(page, "states", {"text": "anna slept."})[0]
    model, tokenizer = small_model("pretraining").eval(), english()
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode("anna slept."), tokenizer.sep_id]])
    with torch.inference_mode():
        states = torch.stack(model.encoder(ids, output_hidden_states=True).hidden_states)[:, 0]
    moved = states[1:] - states[:-1]
    np.testing.assert_allclose(found["distances"], moved.norm(dim=-1), atol=1e-4)
    cosines = torch.nn.functional.cosine_similarity(states[1:], states[:-1], dim=-1)
    np.testing.assert_allclose(found["cosines"], cosines, atol=1e-4)
    # The map is the plane of the two largest principal components: it keeps as much of the states as any plane can.
    flat = (states - states.mean((0, 1))).flatten(0, 1)
    kept = torch.linalg.svdvals(flat.double())[:2].square().sum()
    assert np.square(found["points"]).sum() == pytest.approx(float(kept), rel=1e-3)


@pytest.mark.parametrize("precision", ["int8", "q4i8"])
@pytest.mark.parametrize("relaxed", [True, False])
def test_in_eight_bits_every_build_answers_as_onnx_runtime(folders, tmp_path, open_page, relaxed, precision):
    """With as many threads as there are; relaxed SIMD where this CPU multiplies 8 bits with it."""
    import onnxruntime

    shutil.copytree(folders / "classification", tmp_path / "page")
    if not relaxed:
        (tmp_path / "page/engine/engine-relaxed.wasm").write_bytes(b"no module")  # as to a browser without relaxed SIMD
    with hosting(tmp_path / "page") as address:
        page = open_page(f"{address}/?device=wasm&precision={precision}")
        found = ask(page, "classify", {"text": TEXT, "pair": TEXT})[0]["probabilities"]
        build = page.evaluate("document.documentElement.dataset.build")
    assert relaxed or build == "engine.wasm"
    tokenizer = english()
    text = [*tokenizer.encode(TEXT), tokenizer.sep_id]
    ids = np.array([[tokenizer.cls_id, *text, *text]])
    segments = np.array([[0] * (1 + len(text)) + [1] * len(text)])
    session = onnxruntime.InferenceSession(str(folders / "classification" / FILES[precision]))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": segments}
    expected = softmax(session.run(["logits"], feeds)[0][0])
    assert [found[label] for label in ("bad", "good", "so-so")] == pytest.approx(expected.tolist(), abs=0.02)


def test_every_tab_is_drawn_and_the_page_works_offline(host, open_page):
    page = open_page(f"{host}/pretraining/", wait="#fill_mask .meta")
    assert page.evaluate("crossOriginIsolated")
    assert "in this tab" in page.inner_text("#about")
    for ability in ("sentence_order", "coherence", "embed", "attention", "states"):
        page.click(f"#tab-{ability}")
        page.wait_for_selector(f"#{ability} .meta")
    assert page.locator("#states .path").count() > 5
    assert page.locator("[role=alert]:visible").count() == 0
    before = page.locator("#states polyline").first.get_attribute("points")
    page.fill("#states input[type=range]", "1")
    assert page.locator("#states polyline").first.get_attribute("points") != before
    page.context.set_offline(True)
    page.reload()
    page.wait_for_selector("#states .meta")
    page.click("#tab-fill_mask")
    page.wait_for_selector("#fill_mask .meta")


def test_webgpu_where_the_browser_has_it(folders, host, browser):
    """With a GPU in software, so that it runs anywhere: the answers of the file for GPUs."""
    import onnxruntime

    flags = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with contextlib.closing(browser.browser_type.launch(executable_path=path, args=flags)) as gpu:
        page = gpu.new_page()
        page.goto(f"{host}/classification/#classify")
        page.wait_for_selector("#classify .meta", timeout=60_000)
        if "WebGPU" not in page.inner_text("#about"):
            pytest.skip("this Chromium has no WebGPU, not even in software")
        found = ask(page, "classify", {"text": "anna slept.", "pair": None})[0]["probabilities"]
    tokenizer = english()
    ids = np.array([[tokenizer.cls_id, *tokenizer.encode("anna slept."), tokenizer.sep_id]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    session = onnxruntime.InferenceSession(str(folders / "classification/onnx/model_q4.onnx"))
    expected = softmax(session.run(["logits"], feeds)[0][0])
    assert [found[label] for label in ("bad", "good", "so-so")] == pytest.approx(expected.tolist(), abs=1e-3)


def test_without_the_hosts_headers_the_page_gets_its_threads_itself(folders, open_page):
    with hosting(folders, isolated=False) as address:
        page = open_page(f"{address}/classification/", wait="#classify .meta")
        assert page.evaluate("crossOriginIsolated")
        assert page.is_hidden("#one-thread")


def test_without_shared_memory_the_page_says_so_and_works(folders, open_page):
    with hosting(folders, isolated=False) as address:
        page = open_page(f"{address}/classification/", wait="#classify .meta", service_workers="block")
        assert not page.evaluate("crossOriginIsolated")
        assert "SharedArrayBuffer" in page.inner_text("#one-thread")
        assert "1 thread" in page.inner_text("#about")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("**/*.wasm*", "engine/engine-relaxed.wasm could not be loaded"),
        ("**/tokenizers.min.mjs*", "runtime/tokenizers.min.mjs could not be loaded"),
        ("**/*.onnx*", "onnx/model_q4i8.onnx could not be loaded"),
        ("**/abilities.js", "one of the scripts that it needs could not be loaded"),
    ],
)
def test_a_blocked_file_is_named(host, open_page, block, words):
    page = open_page(f"{host}/classification/", "#trouble:visible", block, service_workers="block")
    assert words in page.inner_text("#trouble")
    page.unroute(block)
    page.click("#trouble button")
    page.wait_for_selector("#classify .meta")
    assert page.is_hidden("#trouble")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("onnx/model_q4i8.onnx", "onnx/model_q4i8.onnx is not there"),
        ("engine/engine-relaxed.wasm", "engine/engine-relaxed.wasm is not there"),
        ("engine/thread.js", "could not be started: engine/thread.js could not be loaded"),
    ],
)
def test_a_missing_file_is_named(folders, tmp_path, open_page, file, words):
    shutil.copytree(folders / "classification", tmp_path / "page")
    (tmp_path / "page" / file).unlink()
    with hosting(tmp_path / "page") as address:
        page = open_page(address, "#trouble:visible")
        assert words in page.inner_text("#trouble")


def test_a_damaged_model_file_is_told(folders, tmp_path, open_page):
    shutil.copytree(folders / "classification", tmp_path / "page")
    model = tmp_path / "page/onnx/model_q4i8.onnx"
    model.write_bytes(model.read_bytes()[:-100])
    with hosting(tmp_path / "page") as address:
        page = open_page(address, "#trouble:visible")
        assert "could not be started: the file of the model is cut short" in page.inner_text("#trouble")


def test_a_text_too_long_is_refused_in_words(host, open_page):
    page = open_page(f"{host}/classification/", wait="#classify .meta")
    page.fill("#classify-text", "anna slept. " * 100)
    page.click("#classify .go")
    page.wait_for_selector("#classify [role=alert]")
    told = page.inner_text("#classify [role=alert]")
    assert "tokens" in told
    assert "reads 128 at once" in told or "reads 48 at once" in told


def test_vectors_of_a_model_that_was_only_pretrained_come_with_a_caution(host, open_page):
    page = open_page(f"{host}/pretraining/#embed", wait="#embed .meta")
    assert "only pretrained" in page.inner_text("#embed .result")
    page = open_page(f"{host}/classification/#embed", wait="#embed .meta")
    assert "only pretrained" not in page.inner_text("#embed .result")


def test_of_several_lines_the_one_that_is_too_long_is_named(host, open_page):
    page = open_page(f"{host}/pretraining/#embed", wait="#embed .meta")
    page.fill("#embed-text", "ben read.\n" + "anna slept. " * 100)
    page.click("#embed .go")
    page.wait_for_selector("#embed [role=alert]")
    assert "“anna slept. anna slept. anna slept. anna…” is" in page.inner_text("#embed [role=alert]")


def test_a_page_that_failed_does_not_go_on_loading(folders, tmp_path, open_page):
    """Files that arrive after the failure bring no bar of progress back."""
    shutil.copytree(folders / "classification", tmp_path / "page")
    (tmp_path / "page/onnx/model_q4i8.onnx").unlink()
    with hosting(tmp_path / "page") as address:
        page = open_page("about:blank", wait=None, service_workers="block")
        late = []
        page.route("**/tokenizer.json*", lambda route: late.append(route))
        page.goto(address)
        page.wait_for_selector("#trouble:visible")
        late[0].continue_()
        page.wait_for_timeout(500)
        assert page.is_hidden("#loading")


def test_transformers_js_in_chromium_answers_as_in_node(folders, tmp_path, open_page):
    """The published package itself, in a page: tokens and numbers of a folder."""
    shutil.copytree(folders / "classification", tmp_path / "models/one")
    (tmp_path / "transformers").symlink_to(MODULES / "@huggingface/transformers/dist")
    (tmp_path / "ort").symlink_to(MODULES / "onnxruntime-web/dist")
    (tmp_path / "index.html").write_text("<!doctype html><title>x</title>")
    script = """async () => {
        const { AutoTokenizer, env, pipeline } = await import('/transformers/transformers.min.js');
        env.allowRemoteModels = false;
        env.allowLocalModels = true;
        env.localModelPath = '/models/';
        env.backends.onnx.wasm.wasmPaths = '/ort/';
        const classify = await pipeline('text-classification', 'one', { dtype: 'fp32', device: 'wasm' });
        const tokenizer = await AutoTokenizer.from_pretrained('one');
        return [await classify('anna slept.', { top_k: 3 }), tokenizer.encode('e\\u0301 ＡＢＣ 한글ABC 我们 ﬁne')];
    }"""
    with hosting(tmp_path) as address:
        scores, ids = open_page(f"{address}/index.html", wait=None).evaluate(script)
    expected = predictor_of("classification", labels=("bad", "good", "so-so")).classify("anna slept.").probabilities
    assert {row["label"]: row["score"] for row in scores} == pytest.approx(expected, abs=1e-4)
    tokenizer = english()
    assert ids == [tokenizer.cls_id, *tokenizer.encode("e\u0301 ＡＢＣ 한글ABC 我们 ﬁne"), tokenizer.sep_id]


# ---------------------------------------------------------------------------------------------------------------------
# The folder


def test_the_page_has_the_abilities_that_its_script_has():
    script = PAGE.joinpath("abilities.js").read_text(encoding="utf-8")
    names = re.search(r"export const ABILITIES = {([^}]+)}", script).group(1)
    assert {name.strip() for name in names.split(",")} == {*ON_PAGE, "states"}


def test_page_json_names_every_large_file(folders):
    folder = folders / "span"
    about = json.loads((folder / "page.json").read_text(encoding="utf-8"))
    for name, said in about["files"].items():
        assert (folder / name).stat().st_size == said["bytes"]
    assert all((folder / name).is_file() for name in about["shell"])
    assert about["model"]["abilities"] == ["embed", "answer", "attention", "states"]
    assert "onnxruntime-web" in (folder / "runtime/LICENCES.txt").read_text(encoding="utf-8")
    html = (folder / "index.html").read_text(encoding="utf-8")
    assert "server" not in html.replace("litebert serve", "").replace("without a server", "")


def test_a_later_export_without_a_page_removes_it(folders, tmp_path):
    shutil.copytree(folders / "span", tmp_path / "out")
    (tmp_path / "out/notes.txt").write_text("mine")
    export_web(folders / "source-span", tmp_path / "out", overwrite=True)
    assert not (tmp_path / "out/index.html").exists()
    assert not (tmp_path / "out/runtime").exists()
    assert (tmp_path / "out/notes.txt").is_file()


def test_the_runtime_of_another_export_will_do_and_a_missing_one_is_named(folders, tmp_path):
    collect_runtime(tmp_path / "copy", folders / "span/runtime")
    assert {path.name for path in (tmp_path / "copy").iterdir()} >= {name for each in RUNTIME.values() for name in each}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"ort.jspi.min.mjs of the npm package onnxruntime-web .*npm install"):
        collect_runtime(tmp_path / "other", tmp_path / "empty")


def test_without_npm_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"npm was not found: install Node.js, or run `npm install"):
        collect_runtime(tmp_path / "runtime", None)


def test_npm_that_fails_is_quoted(tmp_path, monkeypatch):
    fake = tmp_path / "npm"
    fake.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"npm could not download onnxruntime-web@.*ENOTFOUND"):
        collect_runtime(tmp_path / "runtime", None)


def test_options_that_belong_together(cli, folders):
    for arguments, words in (
        (("--to", "onnx", "--page"), "--page: goes with --to web only"),
        (("--to", "web", "--runtime", "x"), "--runtime: goes with --page only"),
    ):
        refused = cli("export", folders / "source-span", *arguments)
        assert refused.code == 2
        assert words in refused.err


def test_serve_static(folders, cli, tmp_path):
    import urllib.request

    command = [sys.executable, "-m", "litebert", "serve", "--static", str(folders / "span"), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split(" at ")[1].split()[0]
        with urllib.request.urlopen(f"{address}/engine/engine.wasm") as answer:
            assert answer.headers["Content-Type"] == "application/wasm"
            assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()
    for arguments, words in (
        (("--static", tmp_path), "no index.html here"),
        (("some/model", "--static", folders / "span"), "leave the models out"),
    ):
        refused = cli("serve", *arguments)
        assert refused.code == 2
        assert words in refused.err
    with pytest.raises(ConfigError, match="cannot listen there"), hosting(folders) as taken:
        serve_static(folders / "span", "127.0.0.1", int(taken.rpartition(":")[2]), lambda address: None)
