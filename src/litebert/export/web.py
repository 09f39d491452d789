"""A model folder -> a folder that transformers.js opens: in a browser, in Node, from any static host.

onnx/model.onnx             fp32, with the input and output names that transformers.js expects
onnx/model_quantized.onnx   the same in int8 (dtype: "q8")
onnx/model_q4.onnx          4 bits for the repeated layers, multiplied in floats: for WebGPU (dtype: "q4")
onnx/model_q4i8.onnx        the same 4 bits, multiplied in int8: what the page's engine loads
config.json, tokenizer.json, tokenizer_config.json, and export.json with checksums and how far each file is from torch
index.html, ...             with `page`: a page that runs the model

    const fill = await pipeline("fill-mask", "my-folder", { dtype: "q8" });
    await fill("paris is the capital of [MASK].");
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import litebert
from litebert.errors import CheckpointError, ConfigError
from litebert.export.check import Reference, compare, random_requests, read_check_data
from litebert.export.folder import (
    TOLERANCE,
    ExportedFile,
    ExportReport,
    copy_companions,
    is_foreign,
    merging_adapters,
    open_source,
    versions,
)
from litebert.export.graph import Form, Rounded
from litebert.export.model_graph import build_onnx
from litebert.export.onnx_file import describe_file, save_onnx
from litebert.export.quantize import likely_requests, measure
from litebert.extras import require
from litebert.files import file_sha256, staged_folder
from litebert.model.config import ModelConfig
from litebert.model.heads import Model
from litebert.page import page_files, read_page
from litebert.predict.abilities import ABILITIES, infer_task
from litebert.predict.exits import ExitRule, depths_of, load_rule, problem_of
from litebert.predict.load import Manifest, source_checksums
from litebert.predict.onnx_runtime import open_session
from litebert.predict.runtime import Outputs, Request, fit_segments, outputs_of
from litebert.remote import CONFIG_FILE
from litebert.tasks.task import kind_of, load_task
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import CONFIG as TOKENIZER_CONFIG
from litebert.text.tokenizer_files import TOKENIZER

FILES: dict[Form, str] = {
    "fp32": "onnx/model.onnx",
    "int8": "onnx/model_quantized.onnx",
    "q4": "onnx/model_q4.onnx",
    "q4i8": "onnx/model_q4i8.onnx",
}
SEQUENCES = 48  # of random pieces, whose states the rounding to 4 bits is fitted to
DEVICES: dict[str, Form] = {"wasm": "q4i8", "webgpu": "q4"}  # what the page runs where
# Our names in a graph -> transformers.js's.
NAMES = {
    "segment_ids": "token_type_ids",
    "masked_lm": "logits",
    "start": "start_logits",
    "end": "end_logits",
    "hidden": "last_hidden_state",
    "pooled": "pooler_output",
}
# The class that transformers.js has for a head, where it is not ALBERT's own: it reads `logits` alone, and has no
# ALBERT for tags.
MODEL_TYPES = {"token-classification": "bert"}
ARCHITECTURES = {
    "pretraining": "ForMaskedLM",
    "masked-lm": "ForMaskedLM",
    "classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "multiple-choice": "ForMultipleChoice",
    "encoder": "Model",
    "sentence-order": "Model",
}


@merging_adapters
def export_web(
    source: Path | str,
    target: Path | str,
    *,
    page: bool = False,
    runtime: Path | None = None,
    check_data: Path | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Write the files of a model folder; nothing is kept unless fp32 equals torch within 1e-4.

    With `page`, the folder is also a web page that runs the model, with the tokenizer and onnxruntime-web (for WebGPU)
    from npm or from the folder `runtime` (a node_modules).
    """
    require("onnxruntime", "web export")
    target = Path(target)
    folder, model = open_source(source, target, overwrite)
    if model.head not in ARCHITECTURES:
        raise CheckpointError(
            f"{folder}: transformers.js has no {model.head} head (the beam search of SQuAD 2.0 models); "
            "fine-tune with task.answerable_head=false"
        )
    reference = Reference(model)
    tokenizer = Tokenizer.load(folder)
    requests = random_requests(model.config, reference.outputs - {"attentions", "first", "mean"}, tokenizer=tokenizer)
    expected = reference.run(requests)
    data = None if check_data is None else read_check_data(check_data, folder)
    files: list[ExportedFile] = []
    with staged_folder(target, keep=is_foreign) as staging, tempfile.TemporaryDirectory() as scratch:
        if page:
            collect_runtime(Path(scratch) / "runtime", runtime)  # first: what is missing is said at once
        (staging / "onnx").mkdir()
        copy_companions(folder, staging)
        if not (staging / TOKENIZER).is_file():
            tokenizer.save(staging)
        fit_tokenizer(staging / TOKENIZER)
        _write_classes(model, staging)
        likely = likely_requests(model.config, tokenizer, reference.outputs, SEQUENCES)
        statistics = measure(reference, likely, grams=True)
        rounded: Rounded = {}
        for form, name in FILES.items():
            proto = rename(
                build_onnx(
                    model, form, statistics, rounded, every_position=True, shown=SHOWN if page else 0, exits=page
                )
            )
            save_onnx(proto, staging / name)
            exported = WebFile(staging / name, model)
            check, _ = compare(expected, exported, requests)
            if form == "fp32" and not check.within(TOLERANCE):
                raise CheckpointError(f"{folder}: {check.worst.output} of the exported file differs from torch's")
            files.append(describe_file(proto, staging, name, check, None if data is None else data.check(exported)))
        if page:
            name = Path(source).resolve().name if Path(source).is_dir() else str(source)
            write_page(staging, name, model, FILES, DEVICES, Path(scratch) / "runtime")
        Manifest(
            head=model.head,
            inputs=tuple(entry.name for entry in proto.graph.input),
            outputs=tuple(entry.name for entry in proto.graph.output),
            files={name: file_sha256(staging / name) for name in FILES.values()},
            versions=versions("onnx", "onnxruntime"),
            checks={file.name: file.as_dict() for file in files},
            source=source_checksums(folder),
        ).write(staging)
    return ExportReport(str(target), model.head, model.num_parameters, files, page)


def rename(proto: Any) -> Any:
    """Give a graph's inputs and outputs the names of the outside."""
    for node in proto.graph.node:
        for values in (node.input, node.output):
            values[:] = [NAMES.get(value, value) for value in values]
    for entry in (*proto.graph.input, *proto.graph.output):
        entry.name = NAMES.get(entry.name, entry.name)
    return proto


def _write_classes(model: Model, folder: Path) -> None:
    """The classes that transformers.js is to take, of the model and of the tokenizer."""
    path = folder / CONFIG_FILE
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model_type"] = MODEL_TYPES.get(model.head, config["model_type"])
    config["architectures"] = [config["model_type"].capitalize() + ARCHITECTURES[model.head]]
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    # Of the classes there, those of ALBERT and BERT alone mark the second text of a pair.
    path = folder / TOKENIZER_CONFIG
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    config["tokenizer_class"] = "AlbertTokenizer"
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def fit_tokenizer(path: Path) -> None:
    """Rewrite a tokenizer.json so that transformers.js normalises as we do: patterns that JavaScript reads, no table.

    transformers.js does not read SentencePiece's character table but imitates a common one, which differs (it treats
    zero-width joiners as spaces). After a compatibility decomposition the table changes only a few characters, which
    are spelled out here.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    steps = (data.get("normalizer") or {}).get("normalizers", [])
    for step in steps:
        if "Regex" in (step.get("pattern") or {}):
            step["pattern"]["Regex"] = to_javascript(step["pattern"]["Regex"])
    kinds = [step["type"] for step in steps]
    place = kinds.index("Precompiled") if "Precompiled" in kinds else 0
    if {"NFKD", "NFKC"} & set(kinds[:place]):
        steps[place : place + 1] = _spell_out(steps[place]["precompiled_charsmap"])
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")  # to download


_CLASS = r"\[[^\]]*\]"
_NAMED = re.compile(rf"\(\?<(\w+)>\[({_CLASS})&&\[\^([^\]]*)\]\](\{{[\d,]+\}})\)\{{0\}}")
_KEPT = re.compile(rf"((?:{_CLASS}|\\p\{{\w+\}}|\(\?:\(\?!{_CLASS}\){_CLASS}\)|\{{[\d,]+\}})+)\\K")


def to_javascript(pattern: str) -> str:
    """A pattern of text/tokenizer_json.py in JavaScript's words: a look behind for \\K, no groups called by name."""
    bodies = {name: f"(?:(?![{without}]){of}){times}" for name, of, without, times in _NAMED.findall(pattern)}
    pattern = re.sub(r"\\g<(\w+)>", lambda call: bodies[call[1]], _NAMED.sub("", pattern))
    pattern = pattern.replace(r"(?=\p{Latin}\p{M})", "")  # there to be fast
    return _KEPT.sub(r"(?<=\1)", re.sub(r"\A\\A", "^", pattern))


def _spell_out(charsmap: str) -> list[dict[str, Any]]:
    """Plain steps equivalent to a character table, for composed text."""
    from tokenizers.normalizers import Precompiled

    table = Precompiled(base64.b64decode(charsmap))
    changed: dict[str, list[str]] = {}
    for code in range(1, 0x110000):
        character = chr(code)
        if 0xD800 <= code < 0xE000 or unicodedata.normalize("NFKC", character) != character:
            continue
        if (becomes := table.normalize_str(character)) != character:
            changed.setdefault(becomes, []).append(character)
    return [
        {"type": "Replace", "pattern": {"Regex": f"[{''.join(map(re.escape, characters))}]"}, "content": becomes}
        for becomes, characters in changed.items()
        if unicodedata.category(characters[0]) != "Cn"  # letters that are younger than the table of this Python
    ]


_SUMMARIES = frozenset({"first", "mean"})  # of the states: who reads the file makes them


class WebFile:
    """One of the files run by ONNX Runtime here, one sequence at a time, with our names for its outputs."""

    any_depth = False

    def __init__(self, path: Path, model: Model):
        self.config: ModelConfig = model.config
        self.head, self.name = model.head, path.name
        self._session = open_session(path, 0)
        self._given = {entry.name for entry in self._session.get_outputs()}
        self.outputs = frozenset(self._ours()) | (_SUMMARIES if "hidden" in self._ours() else frozenset())

    def _ours(self) -> dict[str, str]:
        back = {theirs: ours for ours, theirs in NAMES.items()}
        if self.head not in ("pretraining", "masked-lm"):
            back["logits"] = "logits"
        return {back.get(name, name): name for name in self._given}

    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        return [self._run(request) for request in requests]

    def _run(self, request: Request) -> Outputs:
        ids = request.ids.astype(np.int64)[None]
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.asarray(fit_segments(self.config, request), np.int64)[None],
        }
        theirs = self._ours()
        names = (request.want - _SUMMARIES) | ({"hidden"} if request.want & _SUMMARIES else set())
        values = self._session.run([theirs[name] for name in names], feeds)
        output = {name: value[0] for name, value in zip(names, values, strict=True)}
        if "mean" in request.want:
            output["mean"] = output["hidden"].mean(0)
        if "first" in request.want:
            output["first"] = output["hidden"][0]
        if "masked_lm" in output:
            output["masked_lm"] = output["masked_lm"][request.positions]
        return {name: output[name] for name in request.want}


# ---------------------------------------------------------------------------------------------------------------------
# The page, with what it needs to run offline


# As ABILITIES in abilities.js; `states` is the page's own.
ON_PAGE = ("fill_mask", "sentence_order", "coherence", "embed", "attention", "classify", "tag", "answer", "choose")
SHOWN = 64  # tokens of the pictures of attention and states, as MOST_SHOWN in abilities.js
PAGE_FILE = "page.json"
# npm package -> its version, and what the page takes of it.
PACKAGES = {
    "onnxruntime-web": "1.31.0-dev.20260914-8d85527a0",  # as @huggingface/transformers 4.3.1 uses
    "@huggingface/tokenizers": "0.2.0",
}
RUNTIME = {
    "onnxruntime-web": ("ort.jspi.min.mjs", "ort-wasm-simd-threaded.jspi.mjs", "ort-wasm-simd-threaded.jspi.wasm"),
    "@huggingface/tokenizers": ("tokenizers.min.mjs",),
}
LICENCES = "LICENCES.txt"
INSTALL = "npm install --ignore-scripts " + " ".join(f"{name}@{version}" for name, version in PACKAGES.items())


def write_page(
    folder: Path, name: str, model: Model, files: Mapping[Form, str], devices: Mapping[str, Form], runtime: Path
) -> None:
    """Write the page into an exported folder with files by precision; `devices` says which runs on the engine ("wasm")
    and which on WebGPU."""
    shell = page_files("browser")
    for each in shell:
        (folder / each).parent.mkdir(exist_ok=True)
        (folder / each).write_bytes(read_page(each, "browser"))
    shutil.copytree(runtime, folder / "runtime")
    binaries = [each for each in shell if each.endswith(".wasm")]
    large = [*files.values(), "tokenizer.json", *binaries]
    large += [f"runtime/{path.name}" for path in sorted(runtime.iterdir())]
    if len(model.config.exits) > 1:  # a graph has one depth; the engine stops where it is told to
        devices = {device: form for device, form in devices.items() if device == "wasm"}
    about = describe_model(folder, name, model) | {
        "version": litebert.__version__,
        "precisions": files,
        "models": {device: files[precision] for device, precision in devices.items()},
        "shell": [each for each in shell if each not in ("index.html", "offline.js", *binaries)],
        "files": {
            each: {"bytes": (folder / each).stat().st_size, "version": file_sha256(folder / each)[:12]}
            for each in dict.fromkeys(large)
        },
    }
    (folder / PAGE_FILE).write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def describe_model(folder: Path, name: str, model: Model) -> dict[str, Any]:
    """What the page needs to know about a model: the data of `GET /models`, and settings for its worker."""
    config, tokenizer = model.config, Tokenizer.load(folder)
    task = load_task(folder) or infer_task(config, model.head)
    longest = min(config.max_position_embeddings, tokenizer.max_length or config.max_position_embeddings)
    given = outputs_of(model)
    abilities = [
        each.name
        for each in ABILITIES.values()
        if each.name in ON_PAGE and set(each.outputs) <= given and (not each.heads or model.head in each.heads)
    ]
    shown = None if task is None else {key: getattr(task, key) for key in ("name", "kind", "labels", "pair", "scale")}
    specials = asdict(tokenizer.specials)
    rule = load_rule(folder)
    depths = depths_of(config, model.head, rule)
    return {
        "model": {
            "name": name,
            "abilities": [*abilities, "states"],
            "language": tokenizer.language,
            "task": shown,
            "depths": asdict(depths) | {"depth": None},
        },
        "language": tokenizer.language,
        "task": None if task is None else asdict(task),
        "pooling": "cls" if task is not None and kind_of(task).compares and task.pooling == "first" else "mean",
        "max_length": min(longest, task.max_length) if task else longest,
        "type_vocab_size": config.type_vocab_size,
        "vocab_size": tokenizer.vocab_size,
        "engine": engine_plan(model),
        "exits": {
            "layers": depths.layers,
            "depths": depths.exits,
            "problem": problem_of(model.head, config),
            "rule": _rule(rule) if rule is not None and depths.auto else None,
        },
        "specials": {
            "cls": tokenizer.cls_id,
            "sep": tokenizer.sep_id,
            "mask": specials["mask"],
            "maskId": tokenizer.mask_id,
        },
        "silent": sorted(specials.values()),
    }


def _rule(rule: ExitRule) -> dict[str, Any]:
    """A rule of early exit as page/exits.js reads it."""
    if rule.gate is None:
        return rule.as_dict()
    arrays = (rule.gate.state, rule.gate.signs, rule.gate.bias)
    state, signs, bias = (array.astype(float).round(8).tolist() for array in arrays)
    return rule.as_dict() | {"gate": {"state": state, "signs": signs, "bias": bias}}


def engine_plan(model: Model) -> dict[str, Any]:
    """What page/engine/engine.js needs to know beside the arrays of a file."""
    config = model.config
    return {
        "head": model.head,
        "heads": config.num_attention_heads,
        "hidden_act": config.hidden_act,
        "layer_norm_eps": config.layer_norm_eps,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "max_tokens": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "pooling": config.pooling,
        "applications": [list(step) for step in model.encoder.plan],  # the blocks: [attention, ffn]
        "inner": config.inner_group_num,  # applications of a layer
        "layers": config.num_hidden_layers,
        "exits": config.exits,
    }


# ---------------------------------------------------------------------------------------------------------------------
# The runtime


def collect_runtime(target: Path, source: Path | None) -> None:
    """Put the runtime's files and their licences into a folder: from `source`, or from npm."""
    target.mkdir()
    if source is not None:
        _copy_runtime(source, target)
        return
    with tempfile.TemporaryDirectory() as scratch:
        _download(Path(scratch))
        _copy_runtime(Path(scratch), target)


def _copy_runtime(source: Path, target: Path) -> None:
    """From a node_modules folder, the parent of one, or the runtime of another export."""
    if (source / LICENCES).is_file():
        places = dict.fromkeys(RUNTIME, source)
        shutil.copyfile(source / LICENCES, target / LICENCES)
    else:
        modules = source / "node_modules" if (source / "node_modules").is_dir() else source
        places = {package: modules / package / "dist" for package in RUNTIME}
    for package, names in RUNTIME.items():
        for name in names:
            if not (places[package] / name).is_file():
                raise ConfigError(
                    f"{source}: {name} of the npm package {package} is missing; run `{INSTALL}` in an empty "
                    "folder, and give its node_modules as runtime"
                )
            shutil.copyfile(places[package] / name, target / name)
    if not (target / LICENCES).is_file():
        about = "\n\n".join(_licence(places[package].parent) for package in RUNTIME)
        (target / LICENCES).write_text(about + "\n", encoding="utf-8")


def _licence(package: Path) -> str:
    """The licence that a package declares."""
    about = json.loads((package / "package.json").read_text(encoding="utf-8"))
    line = f"{about['name']} {about['version']}, {about.get('license')} licence"
    text = package / "LICENSE"
    return f"{line}\n\n{text.read_text(encoding='utf-8').strip()}" if text.is_file() else line


def _download(target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError(
            "the page needs onnxruntime-web from npm, and npm was not found: install Node.js, or run "
            f"`{INSTALL}` elsewhere and give that node_modules folder as runtime"
        )
    for package, version in PACKAGES.items():
        done = subprocess.run(
            [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(target), f"{package}@{version}"],
            cwd=target,
            capture_output=True,
            text=True,
        )
        archive = target / (done.stdout.strip().splitlines() or [""])[-1]
        if done.returncode or not archive.is_file():
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ConfigError(
                f"npm could not download {package}@{version} ({reason}); run `{INSTALL}` where there is a network, and "
                "give that node_modules folder as runtime"
            )
        with tarfile.open(archive) as packed:
            wanted = {"package/package.json", "package/LICENSE", *(f"package/dist/{name}" for name in RUNTIME[package])}
            for member in packed.getmembers():
                if member.name in wanted:
                    packed.extract(member, target / "unpacked", filter="data")
        (target / package).parent.mkdir(exist_ok=True)
        shutil.move(target / "unpacked" / "package", target / package)
