"""An option name means one thing in all commands; a name that two commands share is listed here with its meaning."""

from __future__ import annotations

from collections import defaultdict

import pytest

from litebert.cli import list_commands

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
