"""A page that runs an exported model in the browser: the files of litebert/page, their data, and the runtime.

page.json     the model's name, abilities, task and limits, and every large file with its size and version
engine/       our own engine, which runs the model on the CPU
runtime/      the tokenizer, and onnxruntime-web for WebGPU; from npm or from a folder, with their licences
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import litebert
from litebert.errors import ConfigError
from litebert.export.graph import Form
from litebert.files import file_sha256
from litebert.model.heads import Model
from litebert.page import page_files, read_page
from litebert.predict.abilities import ABILITIES, infer_task
from litebert.predict.exits import ExitRule, depths_of, load_rule, problem_of
from litebert.predict.runtime import outputs_of
from litebert.tasks.task import kind_of, load_task
from litebert.text.tokenizer import Tokenizer

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
                    f"{source}: {name} of the npm package {package} is not in there; run `{INSTALL}` in an empty "
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
