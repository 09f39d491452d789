"""The page's engine: torch's numbers in floats, ONNX Runtime's in 8 bits, for every kind of model; and its binaries."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import LABELS, small_model

from litebert.export.check import Reference, compare, random_requests
from litebert.export.model_graph import build_onnx
from litebert.export.quantize import likely_requests, measure
from litebert.export.web import NAMES, SHOWN, WebFile, engine_plan, rename
from litebert.page import FOLDER

ENGINE = Path(str(FOLDER)) / "engine"
ROOT = Path(__file__).parents[2]
MODELS = {
    "pretraining": ("pretraining", {}),
    "odd sizes": (
        "pretraining",
        dict(hidden_size=30, num_attention_heads=3, embedding_size=10, intermediate_size=51, vocab_size=131),
    ),
    "gelu by erf": ("pretraining", dict(hidden_act="gelu")),
    "relu, groups of two blocks": (
        "pretraining",
        dict(hidden_act="relu", sharing="groups", num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2),
    ),
    "attention shared alone": ("encoder", dict(sharing="attention", num_hidden_layers=3)),
    "words projected": ("pretraining", dict(project_words_only=True)),
    "untied": ("masked-lm", dict(tie_word_embeddings=False)),
    "one width": ("encoder", dict(embedding_size=24)),
    "long": ("pretraining", dict(max_position_embeddings=150)),
    "classification": ("classification", dict(labels=("bad", "good", "so-so"))),
    "classification by the mean": ("classification", dict(labels=("bad", "good", "so-so"), pooling="mean")),
    "token-classification": ("token-classification", dict(labels=LABELS)),
    "span": ("span", {}),
    "multiple-choice": ("multiple-choice", {}),
    "sentence-order": ("sentence-order", {}),
}
BACK = {theirs: ours for ours, theirs in NAMES.items() if theirs != "logits"}


def make_model(name):
    head, changes = MODELS[name]
    return small_model(head, **changes)


class NodeEngine:
    """The engine as a runtime: one call of Node for all requests."""

    any_depth = False

    def __init__(self, model, path, folder, binaries=ENGINE):
        self.model, self.config, self.head, self.name = model, model.config, model.head, path.name
        self.path, self.folder, self.binaries = path, folder, binaries

    def run(self, requests):
        if shutil.which("node") is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs Node")
        plain = {"start_logits", "end_logits", "logits", "sentence", "last_hidden_state", "pooler_output", "attentions"}
        cases = [
            {
                "ids": request.ids.tolist(),
                "segments": [min(int(x), self.config.type_vocab_size - 1) for x in request.segments],
                **({} if request.positions is None else {"positions": request.positions.tolist()}),
            }
            for request in requests
        ]
        job = {
            "engine": str(ENGINE),
            "binaries": str(self.binaries),
            "model": str(self.path),
            "plan": engine_plan(self.model),
            "outputs": sorted(plain),
            "shown": 512,
            "cases": cases,
        }
        (self.folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        script = Path(__file__).parent / "web/engine.mjs"
        done = subprocess.run(
            ["node", str(script), str(self.folder / "job.json")], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return [
            self._ours(json.loads(line), request)
            for line, request in zip(done.stdout.splitlines(), requests, strict=True)
        ]

    def _ours(self, made, request):
        words = self.head in ("pretraining", "masked-lm")
        output = {}
        for name, value in made.items():
            data = np.frombuffer(base64.b64decode(value["data"]), np.float32).reshape(value["dims"])
            output["masked_lm" if name == "logits" and words else BACK.get(name, name)] = data[0]
        output |= {"first": output["hidden"][0], "mean": output["hidden"].mean(0)}
        return {name: output[name] for name in request.want}


def save_form(model, form, path):
    """A file of one form, as export/web.py makes it."""
    reference = Reference(model)
    likely = likely_requests(model.config, None, reference.outputs, sequences=2)
    statistics = None if form == "fp32" else measure(reference, likely, grams=form != "int8")
    proto = rename(build_onnx(model, form, statistics, {}, every_position=True, shown=SHOWN))
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("name", MODELS)
def test_in_floats_the_numbers_are_torchs(tmp_path, name):
    model = make_model(name)
    reference = Reference(model)
    requests = random_requests(model.config, reference.outputs)
    engine = NodeEngine(model, save_form(model, "fp32", tmp_path / "model.onnx"), tmp_path)
    check, _ = compare(reference.run(requests), engine, requests)
    assert {row.output for row in check.differences} == reference.outputs
    assert check.within(1e-4), check.worst


@pytest.mark.parametrize("form", ["int8", "q4i8"])
@pytest.mark.parametrize("name", ["pretraining", "odd sizes", "words projected", "untied", "span", "long"])
def test_in_eight_bits_the_numbers_are_those_of_onnx_runtime(tmp_path, name, form):
    """A rounding of inputs may fall the other way, so the two differ by a fraction of what 8 bits cost."""
    model = make_model(name)
    path = save_form(model, form, tmp_path / "model.onnx")
    theirs = WebFile(path, model)
    requests = random_requests(model.config, frozenset(theirs.outputs - {"attentions", "states"}))
    exact, rounded = Reference(model).run(requests), theirs.run(requests)
    ours = NodeEngine(model, path, tmp_path).run(requests)
    for output in requests[0].want:
        cost, apart = (
            np.mean([np.abs(a[output] - b[output]).mean() for a, b in zip(rounded, others, strict=True)])
            for others in (exact, ours)
        )
        assert apart < cost / 3, (output, apart, cost)


def test_the_binaries_are_of_the_source(tmp_path):
    """A new build answers as torch; if the same release of the compiler made it, its bytes are those of the package."""
    if shutil.which("clang-19") is None or shutil.which("wasm-ld-19") is None:
        reason = "needs: apt-get install clang-19 lld-19"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    tool = ROOT / "tools/engine.py"
    subprocess.run([sys.executable, str(tool), "--out", str(tmp_path)], check=True)
    model = make_model("pretraining")
    reference = Reference(model)
    requests = random_requests(model.config, reference.outputs)
    path = save_form(model, "fp32", tmp_path / "model.onnx")
    check, _ = compare(reference.run(requests), NodeEngine(model, path, tmp_path, tmp_path), requests)
    assert check.within(1e-4), check.worst
    release = re.search(r'RELEASE = "(.*?)"', tool.read_text(encoding="utf-8")).group(1)
    if release in subprocess.run(["clang-19", "--version"], capture_output=True, text=True, check=True).stdout:
        for name in ("engine.wasm", "engine-relaxed.wasm"):
            same = (ENGINE / name).read_bytes() == (tmp_path / name).read_bytes()
            assert same, f"{name} is not of engine.c; run python tools/engine.py"
