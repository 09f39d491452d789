"""An option name means one thing in all commands; a name that two commands share is listed here with its meaning."""

from __future__ import annotations

from collections import defaultdict

import pytest

from litebert.cli import list_commands
from litebert.errors import ConfigError

# Name -> words that every help text about it contains.
MEANINGS = {
    "--adapter": ("LoRA adapter of this rank", "of an adapter of the first model"),
    "--batch": "Examples per step, over all devices.",
    "--column": "olumn",
    "--data": "Labelled data",
    "--depth": "after this many layers",
    "--dev": "Dev file",
    "--device": "auto, cpu, cuda, or a GPU by number",
    "--documents": "Number of documents to generate.",
    "--dry-run": "Train nothing; print",
    "--encoding": "Encoding of text files",
    "--engine": "local, or ray: on a cluster.",
    "--json": "Print",
    "--length": "Tokens per sequence",
    "--list": "List the choices and exit.",
    "--max-length": "The longest input, in tokens",
    "--micro-batch-tokens": "Tokens per micro-batch on one device",
    "--model": "model folder or Hub name",
    "--out": ("Folder to write", "File to write"),
    "--overwrite": "Replace an existing",
    "--pair": "second text",
    "--resume": "auto (resume if there is a checkpoint), never or must.",
    "--runtime": ("auto, torch, or for an exported folder", "onnxruntime-web"),
    "--seed": "Random seed",
    "--seeds": "Number of runs with different seeds",
    "--set": "key=value",
    "--steps": "Training steps",
    "--store": "Token store (litebert corpus build)",
    "--task": "ask",
    "--test": "Test file",
    "--text": "aw text file to score on",
    "--text-field": "Field of JSON lines, or column of Parquet.",
    "--threads": "CPU threads; 0: one per available core.",
    "--tokenizer": "Folder or file of the tokenizer",
    "--tokens": "Score about this many tokens of the text",
    "--top": ("How many candidates", "How many texts to return"),
    "--train": "Training file",
    "--workers": "Worker processes; 0: one per core",
}


def shared_options() -> dict[str, dict[str, str]]:
    """Option -> command -> help, for options of two commands or more; the abilities of `predict` count as one."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for words, command in list_commands().items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                for flag in parameter.opts:
                    if flag.startswith("--") and flag != "--help":
                        found[flag][" ".join(words)] = parameter.help
    return {flag: helps for flag, helps in found.items() if len(helps) > 1}


SHARED = shared_options()


def test_every_shared_option_has_a_meaning():
    several = {flag for flag, helps in SHARED.items() if len({name.split()[0] for name in helps}) > 1}
    several |= {flag for flag in SHARED if flag in MEANINGS}
    assert several == set(MEANINGS)


@pytest.mark.parametrize("flag", MEANINGS)
def test_an_option_means_one_thing(flag):
    meaning = MEANINGS[flag]
    for command, help_text in SHARED[flag].items():
        assert any(words in help_text for words in ((meaning,) if isinstance(meaning, str) else meaning)), (
            f"{command} {flag}: {help_text}"
        )


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["pretran"], "did you mean 'pretrain' or"),
        (["order"], "did you mean 'predict sentence-order'?"),
        (["predict", "order"], "did you mean 'sentence-order'?"),
        (["predict", "fil-mask"], "did you mean 'fill-mask'?"),
        (["corpus", "bild"], "did you mean 'build'?"),
        (["adapter", "merg"], "did you mean 'merge'?"),
        (["finetune", "--epoch", "3"], "--epochs"),
        (["evaluate", "model", "--txt", "file"], "--text"),
        (["predict", "embed", "text", "--poling", "cls"], "--pooling"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(cli, words, nearest):
    result = cli(*words)
    assert result.code == 2
    assert nearest in " ".join(result.err.split()), result


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "say what to score on: labelled data for a fine-tuned model (--data), or raw text (--text, --store)"),
        (["--data", "a.csv", "--text", "a.txt"], "--data and --text: give one of them"),
        (["--text", "a.txt", "--blimp", "pairs"], "--text and --blimp: give one of them"),
        (["--text", "a.txt", "--column", "text=a"], "--column: goes with --data, not with --text"),
        (["--text", "a.txt", "--predictions", "p"], "--predictions: goes with --data, not with --text"),
        (["--text", "a.txt", "--task", "sst-2"], "--task: goes with --data, not with --text"),
        (["--store", "s", "--encoding", "cp949"], "--encoding: goes with --data, not with --store"),
        (["--data", "a.csv", "--tokens", "100"], "--tokens: goes with --text or --store, not with --data"),
        (["--data", "a.csv", "--limit", "1"], "--limit: goes with --blimp, not with --data"),
        (["--blimp", "pairs", "--max-length", "64"], "--max-length: goes with --data or --text or --store"),
        (["other", "--text", "a.txt"], "--text: scores one model at a time, got 2"),
    ],
)
def test_evaluate_does_one_of_its_two_jobs(cli, options, message):
    result = cli("evaluate", "model", *options)
    assert (result.code, message in " ".join(result.err.split())) == (2, True), result


@pytest.mark.parametrize(
    ("words", "rank"),
    [
        ("", None),
        ("--adapter", 8),
        ("--adapter --preset small", 8),
        ("--preset small --adapter", 8),
        ("--adapter 16", 16),
        ("--adapter=16", 16),
        ("--adapter 16 --preset small", 16),
        ("--adapter --config run.yaml", 4),
        ("--adapter 16 --config run.yaml", 16),
        ("--adapter --config plain.yaml", 8),
    ],
)
def test_the_rank_of_an_adapter_may_be_left_out(cli, tmp_path, monkeypatch, words, rank):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("adapter: {rank: 4}\n")
    (tmp_path / "plain.yaml").write_text("batch: 8\n")
    found = {}

    def stop(flags, *rest):
        found.update(flags)
        raise ConfigError("enough")

    monkeypatch.setattr("litebert.finetuning.config.config_from", stop)
    cli("finetune", "--task", "classification", *words.split()).assert_refused("enough")
    assert found["adapter"] == {"rank": rank}
    assert found["preset"] == ("small" if "small" in words else None)


@pytest.mark.parametrize("other", ["--few", "--adapter"])
def test_options_that_exclude_each_other_are_named_as_options(cli, other):
    message = f"--head-only and {other}: give one of them"
    cli("finetune", "--task", "classification", "--head-only", other).assert_refused(message)


@pytest.mark.parametrize("words", ["--adapter 0", "--adapter abc", "--adapter=", "--adapter -3", "--adapter=1.5"])
def test_a_rank_that_is_none_is_named(cli, words):
    value = words.replace("=", " ").split(" ")[1]
    refused = f"--adapter: the rank must be a whole number >= 1, got {value!r}; without one it is 8"
    cli("finetune", "--task", "classification", *words.split(" ")).assert_refused(refused)


def test_the_shell_completes_options_after_an_adapter_without_a_rank(cli, monkeypatch):
    monkeypatch.setenv("_LITEBERT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "litebert finetune --adapter --tra")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert cli().out.split() == ["--train"]
    monkeypatch.delenv("_LITEBERT_COMPLETE")
    assert "--adapter [RANK]" in " ".join(cli("finetune", "--help").out.split())
