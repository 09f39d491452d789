"""Folders for transformers.js: its own names, torch's numbers, and the same tokens and answers in Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import LABELS, predictor_of, small_model
from small_vocabularies import english, mixed, wordpiece
from tokenizers import Tokenizer as FastTokenizer

from litebert.errors import CheckpointError
from litebert.export.check import Reference
from litebert.export.web import FILES, export_web, fit_tokenizer
from litebert.model.hub import save_model
from litebert.predict.job import Inputs
from litebert.tasks.task import Task, save_task
from litebert.text.words import SPACE

WEB = Path(__file__).parent / "web"
HEADS = {
    "pretraining": {},
    "encoder": {},
    "classification": dict(labels=("bad", "good", "so-so")),
    "token-classification": dict(labels=LABELS),
    "span": {},
    "multiple-choice": {},
}
OUTPUTS = {
    "pretraining": {"logits", "sentence", "last_hidden_state", "pooler_output"},
    "encoder": {"last_hidden_state", "pooler_output"},
    "classification": {"logits", "last_hidden_state", "pooler_output"},
    "token-classification": {"logits", "last_hidden_state"},
    "span": {"start_logits", "end_logits", "last_hidden_state"},
    "multiple-choice": {"logits", "last_hidden_state", "pooler_output"},
}
# Marks, joiners, full-width forms, ligatures, right-to-left, control characters, and two scripts to a word.
HARD_TEXTS = [
    "Anna walked to the café.",
    "naïve Zoë  said\tgood\u00a0morning\n",
    "e\u0301 a\u0308 \u0301abc",
    "👩\u200d👩\u200d👧 ok\u200cay\u200b!",
    "ＡＢＣ１２３ ①½™ ﬁne",
    "ab\u0301c a\u093c\u0301 o\u0334\u0308 \u0301\u0302x",
    "Σίσυφος ΟΔΟΣ Ω ΟΔΟΣ. ΑΣ'Α aΣ ШΣ",
    "…“quoted”–dash—­soft",
    "\u0001a\u0008b\u007fc\ufeffd\ufffde▁f",
    "우리는 오늘 서울에 가서 책을 읽었다.",
    "가\u1100\u1161각 한글ABC",
    "我今天在北京吃饭。他的朋友每天看书",
    "㌀ﷺ السلام عليكم",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An export of every head, and of a vocabulary in three languages and a WordPiece one."""
    root = tmp_path_factory.mktemp("web")
    for head, changes in HEADS.items():
        source = root / f"source-{head}"
        save_model(small_model(head, **changes), source)
        english().save(source)
        export_web(source, root / head)
    for name, tokenizer in (("mixed", mixed()), ("wordpiece", wordpiece())):
        source = root / f"source-{name}"
        save_model(small_model("encoder", vocab_size=tokenizer.vocab_size), source)
        tokenizer.save(source)
        export_web(source, root / name)
    return root


@pytest.mark.parametrize("head", HEADS)
def test_files_and_names_are_transformers_js(folders, head):
    folder = folders / head
    for name in FILES.values():
        graph = onnx.load(folder / name).graph
        assert {entry.name for entry in graph.input} == {"input_ids", "attention_mask", "token_type_ids"}
        assert {entry.name for entry in graph.output} == OUTPUTS[head]
    assert (folder / "tokenizer.json").is_file()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == ("bert" if head == "token-classification" else "albert")
    manifest = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert set(manifest["files"]) == set(FILES.values())
    for row in manifest["checks"]["onnx/model.onnx"]["check"]["differences"]:
        assert row["difference"] < 1e-4


def test_files_of_a_similarity_model_are_scored_on_its_pairs(tmp_path):
    source = tmp_path / "source"
    save_model(small_model("encoder"), source)
    english().save(source)
    save_task(Task("close", "similarity", metrics=("spearman",), scale=(0.0, 5.0)), source)
    rows = ["anna lives in oslo,anna lives in rome,4", "the cat sat,it was may,0.5", "a cold may,a warm may,3"]
    (tmp_path / "dev.csv").write_text("\n".join(["text,pair,score", *rows]) + "\n", encoding="utf-8")
    report = export_web(source, tmp_path / "web", check_data=tmp_path / "dev.csv")
    checks = {file.name: file.data_check for file in report.files}
    assert checks[FILES["fp32"]].scores["spearman"][0] == pytest.approx(checks[FILES["fp32"]].scores["spearman"][1])
    assert all(check.sequences == 6 for check in checks.values())


def test_the_table_of_characters_is_spelled_out_where_that_is_exact(folders, tmp_path):
    plain = FastTokenizer.from_file(str(folders / "source-pretraining" / "tokenizer.json"))
    spelled = FastTokenizer.from_file(str(folders / "pretraining" / "tokenizer.json"))
    assert "Precompiled" in plain.to_str()
    assert "Precompiled" not in spelled.to_str()
    # Without a decomposition before it, the table does more than these steps could: it stays.
    data = json.loads(plain.to_str())
    data["normalizer"]["normalizers"] = [s for s in data["normalizer"]["normalizers"] if s["type"] != "NFKD"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    fit_tokenizer(path)
    assert "Precompiled" in path.read_text(encoding="utf-8")


def test_what_transformers_js_lacks_is_refused(tmp_path):
    save_model(small_model("answer"), tmp_path / "model")
    english().save(tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"no answer head.*answerable_head=false"):
        export_web(tmp_path / "model", tmp_path / "web")
    assert not (tmp_path / "web").exists()


def test_an_older_export_is_replaced_only_if_asked(folders, tmp_path):
    shutil.copytree(folders / "span", tmp_path / "span")
    with pytest.raises(CheckpointError, match="overwrite"):
        export_web(folders / "source-span", tmp_path / "span")
    export_web(folders / "source-span", tmp_path / "span", overwrite=True)
    assert (tmp_path / "span" / "onnx" / "model.onnx").is_file()


def ask_node(folders: Path, cases: list[dict], tmp_path: Path) -> list:
    """What transformers.js answers in Node."""
    if shutil.which("node") is None or not (WEB / "node_modules").is_dir():
        reason = "needs Node and: npm install --ignore-scripts --no-package-lock --prefix tests/export/web"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        ["node", str(WEB / "answer.mjs"), f"{folders}/", str(tmp_path / "cases.json")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_tokens_in_node_are_ours(folders, tmp_path):
    names = {"pretraining": english(), "mixed": mixed(), "wordpiece": wordpiece()}
    found = ask_node(folders, [{"tokenize": name, "texts": HARD_TEXTS} for name in names], tmp_path)
    for tokenizer, rows in zip(names.values(), found, strict=True):
        for text, ids in zip(HARD_TEXTS, rows, strict=True):
            assert ids == [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id], text


TEXT = "anna walked to the café."
QUESTION, CONTEXT = "who slept?", "her brother slept in 1999, and anna read the old book."


def reference(head: str, *texts: str) -> dict[str, np.ndarray]:
    """Torch's own outputs for one or two texts."""
    inputs = Inputs(english(), 48)
    runtime = Reference(small_model(head, **HEADS[head]))
    want = runtime.outputs - {"attentions", "first"}
    request = inputs.request(*(inputs.encode(text) for text in texts), want=want, positions=np.arange(1))
    return runtime.run([request])[0]


@pytest.mark.parametrize("head", HEADS)
def test_numbers_in_node_are_torchs(folders, tmp_path, head):
    names = {"start_logits": "start", "end_logits": "end", "last_hidden_state": "hidden", "pooler_output": "pooled"}
    wanted = sorted(OUTPUTS[head] - ({"logits"} if head == "pretraining" else set()))
    case = {"raw": head, "dtype": "fp32", "text": QUESTION, "pair": CONTEXT}
    found = ask_node(folders, [{**case, "output": name} for name in wanted], tmp_path)
    expected = reference(head, QUESTION, CONTEXT)
    for name, values in zip(wanted, found, strict=True):
        assert values == pytest.approx(expected[names.get(name, name)].flatten().tolist(), abs=1e-4), name


def test_pipelines_in_node_answer_as_we_do(folders, tmp_path):
    cases = [
        {"task": "fill-mask", "model": "pretraining", "inputs": ["anna [MASK] to the café."], "options": {"top_k": 12}},
        {"task": "text-classification", "model": "classification", "inputs": [TEXT], "options": {"top_k": 3}},
        {"task": "token-classification", "model": "token-classification", "inputs": [TEXT]},
        {"task": "question-answering", "model": "span", "inputs": [QUESTION, CONTEXT]},
        {"task": "feature-extraction", "model": "encoder", "inputs": [TEXT], "options": {"pooling": "mean"}},
    ]
    fill, classes, tags, answer, vector = ask_node(folders, [{"dtype": "fp32", **case} for case in cases], tmp_path)
    mask = predictor_of("pretraining").fill_mask("anna [MASK] to the café.").masks[0]
    # transformers.js offers whatever is probable, litebert what one can read: no special piece, no bare space.
    tokenizer = english()
    silent = {tokenizer.pieces.index(piece) for piece in (*asdict(tokenizer.specials).values(), SPACE)}
    fill = [row for row in fill if row["token"] not in silent][: len(mask.candidates)]
    assert [row["token_str"] for row in fill] == [candidate.word for candidate in mask.candidates]
    assert [row["score"] for row in fill] == pytest.approx([c.probability for c in mask.candidates], abs=1e-4)
    expected = predictor_of("classification", **HEADS["classification"]).classify(TEXT).probabilities
    assert {row["label"]: row["score"] for row in classes} == pytest.approx(expected, abs=1e-4)
    logits = reference("token-classification", TEXT)["logits"][1:-1]  # of each piece between [CLS] and [SEP]
    assert [row["entity"] for row in tags] == [LABELS[row.argmax()] for row in logits if row.argmax()]  # without O
    assert answer["answer"] in CONTEXT
    assert vector[0] == pytest.approx(reference("encoder", TEXT)["mean"].tolist(), abs=1e-4)


@pytest.mark.parametrize(("dtype", "form"), [("q8", "int8"), ("q4", "q4")])
def test_small_files_in_node_answer_as_in_python(folders, tmp_path, dtype, form):
    """The same file in Python: transformers.js adds nothing of its own."""
    import onnxruntime

    case = {"raw": "classification", "dtype": dtype, "text": TEXT, "output": "logits"}
    found = ask_node(folders, [case], tmp_path)[0]
    session = onnxruntime.InferenceSession(str(folders / "classification" / FILES[form]))
    tokenizer = english()
    ids = np.array([[tokenizer.cls_id, *tokenizer.encode(TEXT), tokenizer.sep_id]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    assert found == pytest.approx(session.run(["logits"], feeds)[0][0].tolist(), abs=1e-3)


def test_command(cli, folders, tmp_path):
    shown = cli("export", folders / "source-span", "--to", "web", "--out", tmp_path / "out")
    assert shown.code == 0, shown
    assert "onnx/model_quantized.onnx" in shown.out
    assert "transformers.js" in shown.out
    refused = cli("export", folders / "source-span", "--to", "web", "--int8")
    assert refused.code == 2
    assert "--int8: goes with --to onnx only (web has every precision)" in refused.err
