"""The life of a model through the command line alone, each command in a separate process.

Text, vocabulary, corpus, pretraining that is killed and goes on, fine-tuning, scores, predictions, export, a server,
its answers over HTTP, its end.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from litebert.text.generate import generate_documents

CONFIG = """
model:
  embedding_size: 16
  hidden_size: 32
  num_hidden_layers: 2
  num_attention_heads: 2
  intermediate_size: 64
  max_position_embeddings: 64
  initializer_range: 0.15
data: {stores: [store], tokenizer: vocab, held_out: 20, workers: 0}
recipe: {max_length: 64}
optim: {name: adamw, lr: 0.003, beta2: 0.98, bias_correction: true}
steps: 150
batch_tokens: 1024
micro_batch_tokens: 1024
log: {evaluate_every: 75, evaluate_batches: 4, checkpoint_every: 10}
"""
KINDS = {"baking": "kitchen", "repair": "workshop"}


def start(folder: Path, *arguments: object, **options) -> subprocess.Popen[str]:
    """Begin a command in a folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "litebert", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def end(process: subprocess.Popen[str]) -> str:
    """Wait for a command that must succeed; gives what it printed."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, f"{process.args}\n{out}\n{err}"
    return out


def litebert(folder: Path, *arguments: object) -> str:
    return end(start(folder, *arguments))


def wait_for(condition, process: subprocess.Popen[str], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)


def write_rows(path: Path, count: int, seed: int) -> list[dict[str, str]]:
    """Sentences of two kinds of story, in turn."""
    stories = {kind: list(generate_documents(count // 2, seed=seed, kinds=(kind,))) for kind in KINDS}
    rows = [
        {"text": stories[kind][number][3 + number % 5], "label": label}
        for number in range(count // 2)
        for kind, label in KINDS.items()
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_from_raw_text_to_a_served_model(tmp_path):
    here = tmp_path

    # Text, vocabulary, corpus.
    litebert(here, "corpus", "generate", "--documents", 200, "--seed", 1, "--excerpts", "--out", "text.txt")
    text = (here / "text.txt").read_text(encoding="utf-8")
    stories = generate_documents(200, seed=1, excerpts=True)
    assert text == "\n\n".join("\n".join(story) for story in stories) + "\n"
    litebert(here, "tokenizer", "train", "text.txt", "--vocab-size", 400, "--out", "vocab")
    built = json.loads(
        litebert(here, "corpus", "build", "text.txt", "--tokenizer", "vocab", "--out", "store", "--json")
    )
    assert (built["documents"], built["sentences"]) == (200, sum(bool(line) for line in text.splitlines()))

    # Pretraining, once in peace and once killed in the middle without a word; both end with the same bits.
    (here / "run.yaml").write_text(CONFIG)
    unbroken = start(here, "pretrain", "run.yaml", "--out", "unbroken")
    killed = start(here, "pretrain", "run.yaml", "--out", "run")
    wait_for(lambda: list((here / "run" / "checkpoints").glob("step-*")), killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (here / "run" / "model").exists()
    resumed = litebert(here, "pretrain", "run.yaml", "--out", "run")
    assert "resuming at step" in resumed
    end(unbroken)
    for name in ("model.safetensors", "config.json"):
        assert (here / "run/model" / name).read_bytes() == (here / "unbroken/model" / name).read_bytes(), name
    last = {}
    for run in ("run", "unbroken"):
        lines = [json.loads(line) for line in (here / run / "metrics.jsonl").read_text().splitlines()]
        last[run] = [line for line in lines if line["kind"] == "eval"][-1]
        assert last[run]["step"] == 150
    same = [key for key in last["run"] if key not in ("time", "seconds", "took")]
    assert {key: last["run"][key] for key in same} == {key: last["unbroken"][key] for key in same}
    assert any("loss" in key for key in same)

    # Fine-tuning, scores, predictions.
    write_rows(here / "train.csv", 120, seed=11)
    write_rows(here / "dev.csv", 40, seed=12)
    rows = write_rows(here / "test.csv", 60, seed=13)
    files = ("--train", "train.csv", "--dev", "dev.csv", "--model", "run/model", "--out", "mine")
    settings = ("--set", "optim.lr=3e-3", "--set", "epochs=6")
    printed = litebert(here, "finetune", "--task", "classification", *files, *settings)
    assert f"model:  {Path('mine/best')}" in printed
    assert json.loads((here / "mine" / "scores.json").read_text())["splits"]["dev"]["accuracy"]["value"] > 0.85
    [scored] = json.loads(litebert(here, "evaluate", "mine/best", "--data", "test.csv", "--json"))
    (here / "texts.txt").write_text("\n".join(row["text"] for row in rows) + "\n", encoding="utf-8")
    lines = litebert(here, "predict", "classify", "--file", "texts.txt", "--model", "mine/best", "--json").splitlines()
    predicted = [json.loads(line) for line in lines]
    right = sum(said["label"] == row["label"] for said, row in zip(predicted, rows, strict=True))
    assert scored["examples"] == 60
    assert scored["scores"]["accuracy"]["value"] == pytest.approx(right / 60)
    assert right / 60 > 0.85

    # Export.
    litebert(here, "export", "mine/best", "--to", "onnx", "--out", "exported")
    assert not list((here / "exported").glob("*.safetensors"))
    assert (here / "exported" / "model.onnx").stat().st_size > 4 * 400 * 16

    # A server with all three, asked over HTTP, and told to go.
    with start(here, "serve", "mine/best", "onnx=exported", "base=run/model", "--port", 0) as server:
        try:
            check_server(here, server.stdout.readline().split(" at ")[1].split()[0], rows, predicted)
            server.terminate()
            assert server.wait(60) == 0
        finally:
            server.kill()


def check_server(here: Path, address: str, rows: list[dict[str, str]], predicted: list[dict]) -> None:
    """What the server says is what `litebert predict` said."""
    with httpx.Client(base_url=address, timeout=60) as client:
        models = {model["name"]: model["abilities"] for model in client.get("/models").json()["models"]}
        assert list(models) == ["mine", "onnx", "base"]
        assert ("classify" in models["onnx"], "fill_mask" in models["base"]) == (True, True)
        texts = [row["text"] for row in rows]
        for model, tolerance in (("mine", 1e-6), ("onnx", 1e-4)):
            results = client.post("/classify", json={"model": model, "text": texts}).json()["results"]
            for result, expected in zip(results, predicted, strict=True):
                assert result["label"] == expected["label"]
                assert result["probabilities"] == pytest.approx(expected["probabilities"], abs=tolerance)
        question = "She went to the [MASK] on Monday."
        expected = json.loads(litebert(here, "predict", "fill-mask", question, "--model", "run/model", "--json"))
        [result] = client.post("/fill-mask", json={"model": "base", "text": question}).json()["results"]
        guesses = [
            [(g["word"], round(g["probability"], 5)) for g in r["masks"][0]["candidates"]] for r in (expected, result)
        ]
        assert guesses[0] == guesses[1]
        assert client.post("/classify", json={"model": "base", "text": "x"}).status_code == 400
