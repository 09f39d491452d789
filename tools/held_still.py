"""Does a tree still compute what another one computes, bit for bit? For refactorings, on a CPU.

    python tools/held_still.py                 hashes of this tree: ids, batches, loss curves, weights, answers, ONNX
    python tools/held_still.py ../old .        the same for two trees; prints what differs, exit code 1 if anything does

Every run is tiny: pretraining with each optimiser, with stages, exits, detection and after a stop, fine-tuning of every
kind and by every way, answers of every ability. Only public names are used, so that the walls may move. Times are left
out of the curves. Python, torch and the machine must be the same for both trees.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

TIMED = {"time", "seconds", "took", "tokens_per_second", "examples_per_second", "share_of_peak", "message"}
SHAPE = {
    "hidden_size": 16,
    "embedding_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.1,
}
GOOD, BAD = ("good", "great", "fine"), ("bad", "poor", "dull")
Hashes = Iterator[tuple[str, str]]


def main() -> int:
    """Hash one tree here, or two in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="*", help="two trees to compare; none: hash the installed one")
    trees = parser.parse_args().trees
    if not trees:
        with tempfile.TemporaryDirectory() as folder:
            for name, value in hashes(Path(folder)):
                print(f"{name:40} {value}", flush=True)
        return 0
    found = [_hashes_of(tree) for tree in trees]
    different = [name for name in found[0] | found[-1] if len({each.get(name, "missing") for each in found}) > 1]
    for name in different:
        print(f"{name}: differs")
    print(f"{len(found[0])} hashes, {len(different)} of them differ")
    return bool(different)


def _hashes_of(tree: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve() / "src")}
    printed = subprocess.run(
        [sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return dict(line.split() for line in printed.splitlines())


def hashes(folder: Path) -> Hashes:
    """Every hash of the tree that is imported."""
    import torch

    torch.set_num_threads(1)
    yield from _text(folder)
    yield from _pretraining(folder)
    yield from _finetuning(folder)


def digest(value: object) -> str:
    """A short hash of anything that JSON can write, and of bytes."""
    content = value if isinstance(value, bytes) else json.dumps(value, default=_plain, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _text(folder: Path) -> Hashes:
    """Text -> vocabulary, store, batches."""
    import litebert
    from litebert.text.generate import generate_documents, join_documents

    texts = list(generate_documents(150, seed=3))
    (folder / "text.txt").write_text(join_documents(texts), encoding="utf-8")
    tokenizer = litebert.train_vocab([folder / "text.txt"], litebert.VocabConfig(vocab_size=300)).tokenizer
    tokenizer.save(folder / "tokenizer")
    yield "vocabulary", tokenizer.fingerprint[:16]
    yield "ids", digest([tokenizer.encode_batch(text) for text in texts[:20]])
    litebert.build_store([str(folder / "text.txt")], folder / "tokenizer", folder / "store", workers=1)
    store = litebert.TokenStore.open(folder / "store", tokenizer)
    yield "store", digest(store.content_sum)
    for name in ("paper", "google"):
        recipe = litebert.named_recipe(name, {"max_length": 64})
        batches = litebert.Batches([store], tokenizer, recipe, tokens_per_batch=512, row_tokens=128)
        drawn = [asdict(batches.batch(step, rank, 2, 0, 1)) for step in (0, 7) for rank in (0, 1)]
        yield f"batches/{name}", digest(drawn)


def _pretraining(folder: Path) -> Hashes:
    """Curves and weights of runs that differ in what the loop does."""
    adamw = {"name": "adamw", "lr": 0.01, "warmup_steps": 2}
    runs: dict[str, dict[str, Any]] = {
        "lamb": {},
        "adamw": {"optim": adamw, "micro_batch_tokens": 256},
        "muon": {"optim": {"name": "muon", "lr": 0.01, "warmup_steps": 2, "average": 0.9}},
        "stages": {
            "optim": {**adamw, "decay_share": 0.5},
            "depth": [{"until": 0.5, "value": 1}, {"until": 1, "value": 3}],
            "length": [{"until": 0.5, "value": 32}, {"until": 1, "value": 64}],
            "mask_rate": [{"until": 0.5, "value": 0.3}, {"until": 1, "value": 0.15}],
            "batch_ramp": [{"until": 0.5, "value": 256}, {"until": 1, "value": 512}],
            "lr_factor": [{"until": 0.5, "value": 1}, {"until": 1, "value": 0.5}],
        },
        "exits": {"optim": adamw, "exits": [1, 3]},
        "random exits": {"optim": adamw, "exits": [1, 3], "exit_loss": "random"},
        "detection": {"optim": adamw, "detection": {"share": 0.5, "hidden_size": 64, "layers": 1}},
        "google": {"optim": {**adamw, "style": "google"}, "recipe": {"name": "google", "max_length": 64}},
        "offsets": {"optim": adamw, "position_offset": "random", "position_init": "sinusoidal"},
        "initialised": {"optim": adamw, "init_from": str(folder / "lamb" / "model")},
        "resumed": {"optim": adamw, "steps": 60},
    }
    for name, changes in runs.items():
        yield from _pretrained(folder, name, changes)


def _pretrained(folder: Path, name: str, changes: Mapping[str, Any]) -> Hashes:
    import litebert

    settings = {
        "model": SHAPE,
        "data": {
            "stores": [str(folder / "store")],
            "tokenizer": str(folder / "tokenizer"),
            "held_out": 20,
            "workers": 0,
            "row_tokens": 128,
        },
        "recipe": {"max_length": 64},
        "optim": {"lr": 0.01, "warmup_steps": 2},
        "steps": 8,
        "batch_tokens": 512,
        "micro_batch_tokens": 512,
        "device": {"device": "cpu", "threads": 1},
        "log": {"report_every": 1, "evaluate_every": 4, "evaluate_batches": 2, "checkpoint_every": 3},
    }
    run = folder / name.replace(" ", "-")

    def work() -> bool:
        return litebert.pretrain(litebert.run_config({**settings, **changes}), run, quiet=True).completed

    if name == "resumed":
        _stop(work, run)
    assert work()
    yield from _run(f"pretrain/{run.name}", run, "model")


def _stop(work: Callable[[], bool], run: Path) -> None:
    """Begin a run and ask it to stop after its first reports."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # for a run that was faster

    def watch() -> None:
        while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").stat().st_size < 2000:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    assert not work(), "the run came to its end before it was stopped"


def _run(name: str, run: Path, model: str) -> Hashes:
    """What a run has logged and saved."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curve = [
        {key: value for key, value in line.items() if key not in TIMED} for line in lines if line["kind"] != "event"
    ]
    yield f"{name}/curve", digest(curve)
    for path in sorted((run / model).glob("*.safetensors")):
        yield f"{name}/{path.stem}", digest(path.read_bytes())
    if (run / "scores.json").is_file():
        scores = json.loads((run / "scores.json").read_text())
        yield f"{name}/scores", digest(scores["splits"])
        yield f"{name}/predictions", digest((run / "predictions" / "dev.jsonl").read_bytes())


def _rows(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Labelled rows of a kind, from words of the generated stories and a few that say the label."""
    rows = []
    for number in range(seed, seed + count):
        good, name, place = number % 2 == 0, ("anna", "ben", "zoe")[number % 3], ("rome", "paris", "oslo")[number % 3]
        text = f"{name} lives in {place} and day {number} was {(GOOD if good else BAD)[number % 3]}"
        rows.append(
            {
                "classification": {"text": text, "label": "pos" if good else "neg"},
                "regression": {"text": text, "score": number % 5 + good},
                "multi-label": {"text": text, "labels": ["good"] * good + ["third"] * (number % 3 == 0)},
                "token-classification": {
                    "words": text.split(),
                    "tags": ["B-PER", "O", "O", "B-LOC", *["O"] * (len(text.split()) - 4)],
                },
                "multiple-choice": {
                    "passage": text,
                    "question": "who lives ?",
                    "options": ["anna", "ben", "zoe"],
                    "label": number % 3,
                },
                "question-answering": {
                    "id": f"q{number}",
                    "question": f"where lives {name} ?",
                    "context": text,
                    "answers": {"text": [place], "answer_start": [text.index(place)]}
                    if good or not seed
                    else {"text": [], "answer_start": []},
                },
                "similarity": {"text_a": text, "text_b": f"{place} has {name}", "score": number % 6},
                "pairs": {"text_a": text, "text_b": f"{place} has {name}"},
            }[kind]
        )
    return rows


def _finetuning(folder: Path) -> Hashes:
    """Curves, weights and scores of every kind and every way, and what their models answer."""
    import litebert

    base = folder / "adamw" / "model"
    one = "classification"
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        **{kind: (kind, {}) for kind in ("classification", "regression", "multi-label", "token-classification")},
        **{kind: (kind, {}) for kind in ("multiple-choice", "question-answering", "similarity")},
        "ranking": ("pairs", {"task": "similarity", "similarity": {"loss": "ranking", "sizes": [8]}}),
        "adapter": (one, {"adapter": {"rank": 2}}),
        "few": (one, {"few": True}),
        "head-only": (one, {"head_only": True}),
        "exits-sum": (one, {"exits": [1, 3]}),
        "exits-random": (one, {"exits": [1, 3], "exit_loss": "random"}),
        "lamb": (one, {"optim": {"name": "lamb", "lr": 0.01, "freeze": "embeddings"}}),
        "micro-batches": (
            one,
            {"micro_batch_tokens": 64, "head": "keep", "model": str(folder / "tuned" / one / "best")},
        ),
        "paper": ("question-answering", {"preset": "v2/squad-2.0", "optim": {"lr": 0.01, "warmup_steps": 1}}),
        "resumed-finetuning": (one, {"epochs": 20.0}),
    }
    for name, (kind, changes) in runs.items():
        settings = {
            "task": kind,
            "model": str(base),
            "preset": "base",
            "optim": {"lr": 0.01},
            "batch": 8,
            "max_length": 40,
            "device": {"device": "cpu", "threads": 1},
            "log": {"report_every": 1, "evaluate_every": 2},
            **({} if "epochs" in changes else {"steps": 6}),
            **changes,
        }
        run = folder / "tuned" / name

        def work(settings: dict[str, Any] = settings, kind: str = kind, run: Path = run) -> bool:
            rows = {split: _rows(kind, count, seed) for split, count, seed in (("train", 24, 0), ("dev", 12, 101))}
            return litebert.finetune(litebert.finetune_config(settings), run, quiet=True, **rows).completed

        if name == "resumed-finetuning":
            _stop(work, run)
        assert work()
        yield from _run(f"finetune/{name}", run, "best")
    yield from _answers(folder)


def _answers(folder: Path) -> Hashes:
    """What models say to raw text, as they are and as ONNX."""
    import litebert

    text, other = "Anna lives in Rome and day 3 was good.", "Ben was poor. It was a dull day. Anna came by."
    asked: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
        "adamw/model": (
            "pretrained",
            [
                ("fill_mask", {"text": "the day was [MASK] and [MASK]", "joint": True}),
                ("sentence_order", {"a": text, "b": other, "symmetric": True}),
                ("coherence", {"text": other, "group": 1}),
                ("embed", {"text": [text, other]}),
                ("attention", {"text": text}),
            ],
        ),
        "tuned/classification/best": ("classification", [("classify", {"text": [text, other]})]),
        "tuned/regression/best": ("regression", [("classify", {"text": text})]),
        "tuned/multi-label/best": ("multi-label", [("classify", {"text": text})]),
        "tuned/token-classification/best": ("token-classification", [("tag", {"text": text})]),
        "tuned/question-answering/best": (
            "question-answering",
            [("answer", {"question": "where ?", "context": text * 9})],
        ),
        "tuned/multiple-choice/best": (
            "multiple-choice",
            [("choose", {"passage": text, "question": "who ?", "options": ["anna", "ben"]})],
        ),
        "tuned/similarity/best": (
            "similarity",
            [("similarity", {"a": text, "b": other}), ("search", {"query": text, "texts": [other, text]})],
        ),
    }
    for path, (name, questions) in asked.items():
        predictor = litebert.Predictor(folder / path, device="cpu", threads=1)
        for ability, arguments in questions:
            yield f"answer/{name}/{ability}", digest(getattr(predictor, ability)(**arguments))
        litebert.export_onnx(folder / path, folder / "onnx" / name)
        yield f"onnx/{name}", digest((folder / "onnx" / name / "model.onnx").read_bytes())
    depths = litebert.Predictor(folder / "tuned" / "exits-sum" / "best", device="cpu", threads=1, depth=1)
    yield "answer/exits/classify", digest(depths.classify([text, other]))


if __name__ == "__main__":
    sys.exit(main())
