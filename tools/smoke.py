"""Walk through every command of an installed litebert that has its core dependencies only, without a network.

Run it with the Python of that environment: each command must work, or name the extra that it needs and its pip command.
`tools/package.py` makes such an environment and calls this file.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}

import litebert
from litebert.cli import list_commands, main
from litebert.extras import EXTRAS
from litebert.files import file_sha256
from litebert.predict.load import Manifest
from litebert.remote import DEFAULT_FOLDER as FOLDER

TINY = (
    "model={preset: albert-tiny, embedding_size: 16, hidden_size: 32, intermediate_size: 64, num_attention_heads: 2}",
    "data={stores: [store], tokenizer: vocab, held_out: 20, workers: 0}",
    "recipe.max_length=64",
    "batch_tokens=2048",
    "steps=3",
)
SENTENCES = {"good": "the garden was lovely and the soup was warm", "bad": "the train was late and the soup was cold"}


class Walk:
    """Runs commands in this process, and keeps account of those it has seen."""

    def __init__(self) -> None:
        self.commands = set(list_commands())
        self.seen: set[tuple[str, ...]] = set()

    def works(self, *arguments: str, says: str = "") -> str:
        """The output of a command that must succeed, with `says` in it."""
        code, output = self._run(arguments)
        if code != 0 or says not in output:
            sys.exit(f"litebert {' '.join(arguments)}\nexit {code}, expected 0 and {says!r} in:\n{output}")
        return output

    def needs(self, extra: str, *arguments: str) -> None:
        """A command that must end with code 2 and the pip command of an extra."""
        self.refuses(f'pip install "litebert[{extra}]"', *arguments)

    def refuses(self, says: str, *arguments: str) -> None:
        """A command that must end with code 2 and `says` in its message."""
        code, output = self._run(arguments)
        if code != 2 or says not in output or "Traceback" in output:
            sys.exit(f"litebert {' '.join(arguments)}\nexit {code}, expected 2 and {says!r} in:\n{output}")

    def _run(self, arguments: tuple[str, ...]) -> tuple[int, str]:
        self.seen.add(next(arguments[:n] for n in (1, 2) if arguments[:n] in self.commands))
        output = io.StringIO()
        began = time.monotonic()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                main(list(arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
        print(f"{time.monotonic() - began:6.1f} s  litebert {' '.join(arguments)}"[:150], flush=True)
        return code, output.getvalue()


def walk_text(walk: Walk) -> None:
    """From nothing to a token store."""
    walk.works("corpus", "generate", "--documents", "300", "--out", "train.txt")
    walk.works("corpus", "generate", "--documents", "40", "--held-out", "--out", "held.txt")
    walk.works("tokenizer", "train", "train.txt", "--vocab-size", "500", "--out", "vocab", says="500 pieces")
    walk.works("tokenizer", "show", "vocab", "the garden", says="0 unknown")
    walk.works("corpus", "build", "train.txt", "--tokenizer", "vocab", "--out", "store", "--workers", "1")
    walk.works("corpus", "verify", "store", "--tokenizer", "vocab")
    walk.works("corpus", "show", "store", "--tokenizer", "vocab", says="Example 1")
    walk.needs("ray", "corpus", "build", "train.txt", "--tokenizer", "vocab", "--out", "other", "--engine", "ray")


def walk_pretraining(walk: Walk) -> None:
    """A model of three steps, looked at from all sides."""
    walk.works("plan", "albert-base", says="tokens/s")
    settings = [word for setting in TINY for word in ("--set", setting)]
    walk.works("pretrain", "cpu/albert-tiny", *settings, "--out", "run", says="model: run/model")
    walk.needs("report", "pretrain", "cpu/albert-tiny", *settings, "--set", "log.tensorboard=true", "--out", "board")
    walk.works("report", "run", says="report.html")
    walk.works("evaluate", "run/model", "--text", "held.txt", "--tokens", "2000", says="masked LM")
    walk.works("convert", "run/model", "copy", "--dtype", "float16", says="mapped")
    walk.works(
        "bench",
        "pretrain",
        "--rounds",
        "1",
        "--seconds",
        "0.01",
        "--micro-batch-tokens",
        "128",
        says='pip install "litebert[hf]"',
    )
    walk.needs("hf", "verify", "run/model")


def walk_finetuning(walk: Walk) -> None:
    """One model for each kind of answer."""
    with open("labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((text, name) for name, text in SENTENCES.items())])
    rows = {
        "tags": {"words": ["Anna", "was", "late"], "tags": ["B-PER", "O", "O"]},
        "questions": {"question": "what was late?", "context": SENTENCES["bad"], "answer": "the train"},
        "choices": {
            "passage": SENTENCES["bad"],
            "question": "what was late?",
            "options": ["train", "soup"],
            "label": 0,
        },
    }
    for name, row in rows.items():
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    for kind, data in (
        ("classification", "labels.csv"),
        ("token-classification", "tags.jsonl"),
        ("question-answering", "questions.jsonl"),
        ("multiple-choice", "choices.jsonl"),
    ):
        files = ("--train", data, "--dev", data)
        walk.works("finetune", "--task", kind, *files, "--model", "run/model", "--out", kind, "--set", "epochs=1")
    labels = ("--task", "classification", "--train", "labels.csv", "--dev", "labels.csv", "--model", "run/model")
    walk.works("finetune", *labels, "--adapter", "2", "--out", "adapted", "--set", "epochs=1")
    walk.refuses("is not on the Hub", "push", "adapted/adapter", "me/mood")
    walk.works("adapter", "merge", "adapted/adapter", "--out", "merged", says="model: merged")
    walk.works("finetune", *labels, "--out", "exits", "--set", "epochs=1", "--set", "exits=[2, 4]")
    walk.works("calibrate", "exits/best", "--data", "labels.csv", "--max-loss", "1", says="exits")
    walk.needs("hf", "finetune", "--task", "sst-2", "--model", "run/model", "--out", "public")
    walk.works("evaluate", "classification/best", "--data", "labels.csv", says="accuracy")
    labelled = ("--task", "classification", "--train", "labels.csv", "--dev", "labels.csv")
    walk.works("baseline", *labelled, "--method", "tfidf", says="accuracy")
    walk.needs("baselines", "baseline", *labelled, "--method", "word2vec", "--train-text", "train.txt")


def walk_prediction(walk: Walk) -> None:
    """Every ability, and the ways out to other runtimes."""
    for words in (
        ("fill-mask", "the [MASK] was late"),
        ("sentence-order", "The train was late.", "Then it came."),
        ("coherence", "The train was late. Then it came. Everybody was glad."),
        ("embed", "the train"),
        ("similarity", "the train", "the soup"),
        ("search", "the train", "the soup was cold", "the train was late"),
        ("attention", "the train"),
    ):
        walk.works("predict", *words, "--model", "run/model", "--json", says="{")
    walk.works("predict", "classify", "the soup", "--model", "classification/best", says="good")
    walk.works("predict", "tag", "Anna was late", "--model", "token-classification/best", "--json", says="B-PER")
    walk.works("score", "classification/best", "labels.csv", "--column", "text", "--out", "scored", "--workers", "1")
    question = ("what was late?", SENTENCES["bad"])
    walk.works("predict", "answer", *question, "--model", "question-answering/best", "--json", says="{")
    choice = (SENTENCES["bad"], "what was late?", "train", "soup")
    walk.works("predict", "choose", *choice, "--model", "multiple-choice/best", "--json", says="{")
    if (FOLDER / "config.json").is_file():
        walk.works("predict", "fill-mask", "The capital of France is [MASK].", says="[MASK]")
        walk.works("predict", "classify", "a warm and funny film", says="model: default:sentiment")
        walk.works("predict", "classify", "a man sleeps", "--pair", "nobody is awake", says="model: default:entailment")
        walk.works("predict", "answer", *question, says="model: default:questions")
        walk.works("predict", "search", "the train", *SENTENCES.values(), says="model: default:similarity")
    walk.works("export", "run/model", "--to", "torch-export", "--out", "exported", says="model.pt2")
    walk.needs("onnx", "export", "run/model", "--to", "onnx", "--out", "exported-onnx")
    # Sent by somebody else; what is in the file does not matter before onnxruntime is there.
    sent = Path(shutil.copytree("run/model", "sent"))
    (sent / "model.onnx").write_bytes(b"")
    Manifest("pretraining", (), (), {"model.onnx": file_sha256(sent / "model.onnx")}, {}).write(sent)
    walk.needs("onnx", "predict", "fill-mask", "[MASK]", "--model", "sent", "--runtime", "onnx")
    walk.needs("serve", "serve", "run/model", "--port", "0")


def walk_rest(walk: Walk) -> None:
    """What stands for itself."""
    walk.works("params", says="11,683,584")
    found = walk.works("doctor")
    assert all(f'missing: pip install "litebert[{name}]"' in found for name in EXTRAS), found
    walk.works("reproduce", "table1", "--out", "table1", says="Table 1")
    walk.works("quickstart", "--steps", "2", "--documents", "200", "--out", "quick", says="report")


def smoke() -> None:
    """Walk through the house in a folder that is thrown away."""
    present = [name for modules in EXTRAS.values() for name in modules if importlib.util.find_spec(name)]
    if present:
        sys.exit(f"not an environment with the core alone: {', '.join(present)} can be imported")
    walk = Walk()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for part in (walk_rest, walk_text, walk_pretraining, walk_finetuning, walk_prediction):
            part(walk)
    if left := walk.commands - walk.seen:
        sys.exit(f"commands that nobody has tried: {', '.join(' '.join(words) for words in sorted(left))}")
    print(f"litebert {litebert.__version__} from {Path(litebert.__file__).parent}: {len(walk.seen)} commands")


if __name__ == "__main__":
    smoke()
