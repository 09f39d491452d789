"""Every command, found automatically: its help, and its messages for wrong values, option by option.

A new command is entered in LINES with a line that would work; what can be wrong about an option follows from its type.
"""

from __future__ import annotations

import inspect
import io
import socket
import sys
import typing
from pathlib import Path

import pytest
from tiny_models import write_models
from tiny_run import make_corpus, tiny_config

from litebert.cli import list_commands
from litebert.config import write_yaml

COMMANDS = {" ".join(words): command for words, command in list_commands().items()}
ROWS = "text,label\n" + "".join(f"Anna slept {n} hours.,{('calm', 'sad')[n % 2]}\n" for n in range(8))

# A line that would work in the folder that `world` makes; `--port PORT` is taken, so that no server ever starts.
LINES = {
    "quickstart": "--documents 200 --steps 2 --out new",
    "tokenizer train": "text.txt --vocab-size 120 --out new",
    "tokenizer show": "tokenizer text",
    "corpus build": "text.txt --tokenizer tokenizer --out new --workers 1",
    "corpus verify": "store --tokenizer tokenizer",
    "corpus show": "store --tokenizer tokenizer --examples 1",
    "corpus generate": "--documents 2 --out new.txt",
    "pretrain": "run.yaml --out new",
    "plan": "albert-tiny --gpus 1",
    "finetune": "--task classification --train rows.csv --dev rows.csv --model pretraining --set steps=2 --out new",
    "adapter merge": "adapter --out new",
    "score": "classification rows.csv --column text --out new --workers 1",
    "evaluate": "pretraining --text text.txt --tokens 200",
    "calibrate": "classification --data rows.csv --max-loss 1",
    "baseline": "--task classification --train rows.csv --dev rows.csv --method bow",
    "report": "run --out new.html",
    "reproduce": "table5 --scale cpu --steps 2 --out new",
    "bench pretrain": "albert-tiny --length 16 --micro-batch-tokens 64 --against none --rounds 1 --seconds 0.01",
    "params": "albert-tiny",
    "convert": "pretraining new",
    "verify": "pretraining --sequences 1 --length 8",
    "push": "pretraining me/mine",
    "export": "pretraining --out new",
    "serve": "pretraining --port PORT",
    "doctor": "",
    "predict fill-mask": "[MASK] --model pretraining",
    "predict sentence-order": "a b --model pretraining",
    "predict coherence": "text --model pretraining",
    "predict embed": "text --model pretraining",
    "predict similarity": "a b --model pretraining",
    "predict search": "query a b --model pretraining",
    "predict classify": "text --model classification",
    "predict tag": "text --model token-classification",
    "predict answer": "who text --model answer",
    "predict choose": "passage question a b --model multiple-choice",
    "predict attention": "text --model pretraining",
}
# Where an option needs another line to be looked at at all.
OTHER_LINES = {
    **{(name, "--file"): LINES[name][LINES[name].index("--model") :] for name in LINES if name.startswith("predict ")},
    ("evaluate", "--task"): "classification --data rows.csv",
    ("evaluate", "--data"): "classification",
    ("evaluate", "--column"): "classification --data rows.csv",
    ("evaluate", "--encoding"): "classification --data rows.csv",
    ("evaluate", "--blimp"): "pretraining",
    ("evaluate", "--limit"): "pretraining --blimp pairs.jsonl",
    ("baseline", "--train-text"): "--task classification --train rows.csv --dev rows.csv --method word2vec",
    ("baseline", "--text"): "--task masked-lm --train-text text.txt --model pretraining",
    ("baseline", "--tokenizer"): "--task masked-lm --train-text text.txt --text rows.csv",
    ("bench pretrain", "--store"): LINES["bench pretrain"] + " --tokenizer tokenizer",
    ("bench pretrain", "--tokenizer"): LINES["bench pretrain"] + " --store store",
    ("reproduce", "--store"): LINES["reproduce"] + " --tokenizer tokenizer",
    ("export", "--runtime"): "pretraining --to web --page --out new",
    ("serve", "--static"): "--port PORT",
    ("serve", "--runtime"): "pretraining --port 0",
    ("serve", "--device"): "pretraining --port 0",
}
# These have something to do without being told anything; the others say what they need.
RUN_ALONE = {"quickstart", "doctor", "params", "corpus generate", "bench pretrain", "serve"}
FREE_TEXT = {"--message", "--revision", "--text-field", "--pair", "--api-key", "--host", "--allowed-host"}
ANY_NUMBER = {"--seed", "--threshold"}
WRITTEN = {"--out", "--predictions"}


def options_of(command):
    """Name and type of every option that takes a value: list[int] | None counts as int."""
    hints = typing.get_type_hints(inspect.unwrap(COMMANDS[command].callback))
    for parameter in COMMANDS[command].params:
        kind = hints.get(parameter.name, bool)
        while typing.get_args(kind) and typing.get_origin(kind) is not typing.Literal:
            kind = typing.get_args(kind)[0]
        if parameter.param_type_name == "option" and kind is not bool:
            yield parameter.opts[0], kind


def wrong_values():
    """(command, option, a value that cannot be) for all of them."""
    for command in COMMANDS:
        for option, kind in options_of(command):
            if kind is Path and option not in WRITTEN:
                yield command, option, "./none"
            elif kind is not Path and option not in FREE_TEXT and (command, option) != ("score", "--out"):  # also a URL
                yield command, option, "nonsense"
            if kind in (int, float) and option not in ANY_NUMBER:
                yield command, option, "-7"


def write_adapter(model, folder):
    from litebert.model.adapter import AdapterConfig, add_adapter, save_adapter
    from litebert.model.hub import load_model
    from litebert.tasks.task import Task, load_task, save_task

    adapted = load_model(model)
    add_adapter(adapted, AdapterConfig(rank=2))
    save_adapter(adapted, folder, base=str(model))
    save_task(load_task(model) or Task("classification", "classification", adapted.config.labels), folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with small models, text, a store, a run, labelled rows, and a port that somebody else has."""
    folder = tmp_path_factory.mktemp("world")
    make_corpus(folder)
    write_models(folder)
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    (folder / "pairs.jsonl").write_text('{"sentence_good": "a dog.", "sentence_bad": "a dogs."}\n', encoding="utf-8")
    write_adapter(folder / "classification", folder / "adapter")
    settings = {"steps": 2, "log": {"evaluate_every": 0}}
    (folder / "run.yaml").write_text(write_yaml(tiny_config(folder, **settings)))
    from litebert.pretraining.run import pretrain

    pretrain(tiny_config(folder, **settings), folder / "run", quiet=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield folder, str(taken.getsockname()[1])


@pytest.fixture
def call(cli, world, monkeypatch):
    """Call a command in the world, with nothing on standard input: call("params", "--micro-batch-tokens", "x")."""
    folder, port = world
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    before = set(folder.rglob("*"))

    def run(command, *arguments):
        words = [port if word == "PORT" else word for word in arguments]
        return cli(*command.split(), *words)

    yield run
    assert not set(folder.rglob("*")) - before, "a mistake leaves nothing behind"


def check_refused(result, *words):
    assert result.code == 2, result
    assert "Traceback" not in result.err
    message = [line.strip("│╭╮╰╯─ ") for line in result.err.splitlines()]
    message = [line for line in message if line and not line.startswith(("Usage:", "Try 'litebert"))]
    assert 1 <= len(message) <= 4, result
    for word in words:
        assert word in " ".join(message), result


def test_every_command_has_a_line():
    assert set(LINES) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_it_does_and_what_each_option_means(cli, command):
    result = cli(*command.split(), "--help")
    assert result.code == 0
    sentence = inspect.getdoc(COMMANDS[command].callback).split("\n")[0]
    assert sentence in " ".join(result.out.split()), result
    for parameter in COMMANDS[command].params:
        assert parameter.help, f"{command}: nothing is said about {parameter.name}"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in RUN_ALONE])
def test_without_arguments_it_says_what_it_needs(call, command):
    check_refused(call(command))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_named(call, command):
    check_refused(call(command, *LINES[command].split(), "--no-such-option"), "No such option: --no-such-option")


@pytest.mark.parametrize(("command", "option", "value"), list(wrong_values()))
def test_a_wrong_value_is_named(call, command, option, value):
    line = OTHER_LINES.get((command, option), LINES[command])
    result = call(command, *line.split(), option, value)
    is_number = dict(options_of(command))[option] in (int, float)
    # Of a number the option is named, as the Python functions name it: --vocab-size, vocab_size, top.
    check_refused(result, option.strip("-").split("-")[0] if is_number else value.strip("./"))


@pytest.mark.parametrize("command", [name for name in COMMANDS if any(o == "--out" for o, _ in options_of(name))])
def test_a_place_that_cannot_be_written_is_named(call, command):
    """A file stands where a folder is wanted."""
    check_refused(call(command, *LINES[command].split(), "--out", "rows.csv/inside"), "rows.csv")
