"""Untrusted files with every value replaced by nonsense: one message each, no traceback, no hang.

    python benchmarks/hostile_files.py [--only NAME] [--every 1] [--seconds 20]

Makes small models, tokenizers, configs and data files, then damages one at a time: each value of its JSON or YAML is
replaced by every entry of NONSENSE or removed, and its text is cut, flipped and replaced by DAMAGED. Opening the file
must succeed or raise a LitebertError within --seconds; anything else is printed and makes the script fail. `--every 50`
takes each fiftieth case, as the tests do.
"""

from __future__ import annotations

import copy
import json
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tiny import tiny_model
from trials import describe_error, read_options, try_all

from litebert.errors import LitebertError

DEEP: Any = 1
for _ in range(500):
    DEEP = [DEEP]
REMOVED = object()
NONSENSE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    10**9,
    10**12,
    10**30,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "nonsense",
    "\x00\ud800",
    "9" * 400,
    [],
    {},
    [None],
    [[], {}],
    {"a": {"b": None}},
    {"0": "x"},
    DEEP,
)
DAMAGED = (
    b"",
    b"\x00" * 100,
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"hidden_size": ' + b"9" * 5000 + b"}",
    b"a: &a [*a]",
    b"a: &a {<<: *a}",
    b"a0: &a0 [1, 1]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 40)),
    b"seed: 2001-13-45",
    b"seed: !!int abc",
    b"seed: !!python/object/apply:os.system [true]",
    b"seed: 0x" + b"f" * 5000,
)


@dataclass(frozen=True)
class Door:
    """A file that may come from anywhere, and what opens it."""

    name: str
    file: Path
    open: Callable[[], object]


class TooSlowError(Exception):
    """A case took longer than it may."""


def make_doors(folder: Path) -> list[Door]:
    """Small files of every kind below `folder`."""
    from litebert.finetuning.config import finetune_config, read_settings
    from litebert.model.config import load_config
    from litebert.model.heads import ClassificationModel, PretrainingModel
    from litebert.model.hub import load_model, save_model
    from litebert.predict.predictor import Predictor
    from litebert.pretraining.config import load_run_config
    from litebert.tasks.own import read_own
    from litebert.tasks.read import read_task
    from litebert.tasks.task import Task, load_task, save_task
    from litebert.text.build import build_store
    from litebert.text.generate import generate_documents
    from litebert.text.tokenizer import Tokenizer
    from litebert.text.train_vocab import VocabConfig, train_vocab

    text = folder / "text.txt"
    text.write_text("\n\n".join("\n".join(document) for document in generate_documents(60, seed=1)), encoding="utf-8")
    tokenizer = train_vocab([text], VocabConfig(vocab_size=200)).tokenizer
    shape = tiny_model(tokenizer.vocab_size, labels=("no", "yes"))
    doors = []

    def add(name: str, file: Path, opener: Callable[[], object]) -> None:
        doors.append(Door(name, file, opener))

    model = folder / "model"
    save_model(ClassificationModel(shape), model)
    tokenizer.save(model)
    save_task(Task("mine", "classification", ("no", "yes"), ("accuracy",)), model)

    def predict() -> object:
        return Predictor(model, runtime="torch", device="cpu").classify("a small story")

    add("config.json", model / "config.json", predict)
    add("config.json, counted", model / "config.json", lambda: load_config(model))
    add("config.json, new head", model / "config.json", lambda: load_model(model, "masked-lm", new_head=True))
    add("task.json", model / "task.json", predict)
    add("task.json alone", model / "task.json", lambda: load_task(model))
    add("tokenizer_config.json", model / "tokenizer_config.json", lambda: Tokenizer.load(model).encode("a story"))

    shards = folder / "shards"
    save_model(PretrainingModel(shape), shards)
    (shards / "model.safetensors").rename(shards / "model-00001-of-00001.safetensors")
    (shards / "SHA256SUMS").unlink()  # it names the file of before
    from safetensors import safe_open

    with safe_open(shards / "model-00001-of-00001.safetensors", "pt") as file:
        places = dict.fromkeys(list(file.keys()), "model-00001-of-00001.safetensors")
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    add("model.safetensors.index.json", shards / "model.safetensors.index.json", lambda: load_model(shards))

    alone = folder / "tokenizer"
    alone.mkdir()
    content = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] = content["model"]["vocab"][:12]
    (alone / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    add("tokenizer.json", alone / "tokenizer.json", lambda: Tokenizer.load(alone).encode("a story"))

    run = folder / "run.yaml"
    settings = {
        "model": {"preset": "albert-tiny", "num_hidden_layers": 2},
        "data": {"stores": ["store"], "tokenizer": "vocab", "held_out": 0.1, "workers": 0},
        "optim": {"lr": 0.001, "warmup_steps": 2},
        "steps": 5,
        "depth": [{"until": 0.5, "value": 1}, {"until": 1.0, "value": 2}],
        "seed": 1,
    }
    run.write_text(yaml.safe_dump(settings), encoding="utf-8")
    add("run.yaml", run, lambda: load_run_config(run))

    tuning = folder / "finetune.yaml"
    settings = {"task": "sst-2", "model": "default", "optim": {"lr": 1e-4}, "epochs": 1.0, "data": {"columns": {}}}
    tuning.write_text(yaml.safe_dump(settings), encoding="utf-8")
    add("finetune.yaml", tuning, lambda: finetune_config(read_settings(tuning, [])[0]))

    rows = [{"text": "a story", "label": "yes"}, {"text": "no story", "label": "no"}, {"text": "more", "label": "no"}]
    table, lines = folder / "rows.json", folder / "rows.jsonl"
    table.write_text(json.dumps(rows), encoding="utf-8")
    lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for file in (table, lines):
        add(file.name, file, lambda file=file: read_own("classification", {"train": file, "dev": file}))

    squad = folder / "squad"
    squad.mkdir()
    answer = {"text": "Anna", "answer_start": 0}
    question = {"id": "1", "question": "Who?", "answers": [answer], "is_impossible": False}
    paragraph = {"context": "Anna sleeps.", "qas": [question]}
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [paragraph]}]}
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        (squad / name).write_text(json.dumps(content), encoding="utf-8")
    add("squad.json", squad / "dev-v2.0.json", lambda: read_task("squad-2.0", folder=squad))

    corpus = folder / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"text": "One. Two."}) for _ in range(3)), encoding="utf-8")
    places_of = iter(range(10**9))
    add(
        "corpus.jsonl",
        corpus,
        lambda: build_store([corpus], model, folder / f"store-{next(places_of)}", workers=1),
    )
    return doors


def damage(content: bytes, seed: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """What a file may hold instead of `content`: a name, and a function that makes it."""
    draw = random.Random(seed)
    for number, other in enumerate(DAMAGED):
        yield f"damaged {number}", partial(bytes, other)
    for share in (0.1, 0.5, 0.9, 0.99):
        yield f"cut at {share:.0%}", partial(bytes, content[: int(share * len(content))])
    for _ in range(60):
        place, bit = draw.randrange(len(content)), draw.randrange(8)
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        yield f"bit {bit} of byte {place}", partial(bytes, flipped)
    data, write = _understand(content.decode("utf-8"))
    for path in list(_paths(data)):
        name = ".".join(map(str, path))
        for value in NONSENSE:
            shown = "500 lists" if value is DEEP else repr(value)[:20]
            yield f"{name} = {shown}", partial(_replaced, data, path, value, write)
        yield f"{name} removed", partial(_replaced, data, path, REMOVED, write)


def _understand(text: str) -> tuple[Any, Callable[[Any], str]]:
    """The data of a JSON, JSONL or YAML file, and what writes such a file."""
    try:
        return json.loads(text), json.dumps
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.split("\n")], _write_lines
    except ValueError:
        return yaml.safe_load(text), yaml.safe_dump


def _write_lines(rows: list[Any]) -> str:
    return "\n".join(map(json.dumps, rows))


def _replaced(data: Any, path: tuple[Any, ...], value: Any, write: Callable[[Any], str]) -> bytes:
    changed = copy.deepcopy(data)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if value is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return write(changed).encode("utf-8", "surrogatepass")


def _paths(data: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*before, key)
        yield from _paths(value, (*before, key))


def try_door(door: Door, seconds: int, every: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """How many cases of a door were tried, and what was wrong in which."""
    whole = door.file.read_bytes()
    wrong, count = [], 0

    def too_slow(*_: object) -> None:
        raise TooSlowError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    try:
        door.open()
        for number, (what, make) in enumerate(damage(whole, seed=len(whole))):
            if number % every != first % every:
                continue
            try:
                door.file.write_bytes(make())
            except RecursionError:  # no YAML of 500 lists
                continue
            count += 1
            signal.alarm(seconds)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    door.open()
            except LitebertError as error:
                message = str(error)
                if len(message) > 2000 or not message:
                    wrong.append(f"{door.name}: {what}: a message of {len(message):,} characters")
            except Exception as error:
                wrong.append(f"{door.name}: {what}: {describe_error(error)}")
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
        door.file.write_bytes(whole)
    return count, wrong


def main() -> None:
    """Try every door, print failures."""
    options = read_options(__doc__, every=1, seconds=20)
    try_all(make_doors, lambda door: try_door(door, options.seconds, options.every), options.only)


if __name__ == "__main__":
    main()
