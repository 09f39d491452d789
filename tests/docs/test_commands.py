"""Every `litebert` command that the documentation shows exists, with the options that it shows."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer.main
from doc_pages import PAGES, ROOT, TRANSLATIONS, Block, blocks, litebert_arguments, page_name, prose

from litebert.cli import app

ROOT_COMMAND = typer.main.get_command(app)
WITH_COMMANDS = [page for page in PAGES if "litebert " in page.read_text(encoding="utf-8")]


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and what is left: [tokenizer, train, a] -> (train, [a])."""
    command: Any = ROOT_COMMAND
    while getattr(command, "commands", None):
        if not words or words[0].startswith("-"):
            return command, words
        assert words[0] in command.commands, f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check(words: list[str]) -> None:
    """Parse words as the command line would, and run nothing."""
    words = [word for word in words if word != "--debug"]
    command, rest = find_command(words)
    if getattr(command, "commands", None):
        assert rest in (["--help"], ["-h"]), f"{' '.join(words)!r} is not a whole command"
    elif rest not in (["--help"], ["-h"]):
        command.make_context(command.name, list(rest))


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=page_name)
def test_commands_parse(page):
    for block in blocks(page):
        if block.language in ("python", "text", "yaml"):
            continue
        for command in block.commands():
            arguments = litebert_arguments(command)
            if arguments is not None:
                try:
                    check(arguments)
                except Exception as error:
                    pytest.fail(f"{block.where}: {' '.join(command)}: {getattr(error, 'message', error)}")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=page_name)
def test_commands_in_sentences_exist(page):
    """`litebert finetune --task ...` in running text: the command and its options are real, whatever is left out."""
    for span in re.findall(r"`litebert ([a-z][^`]*)`", prose(page)):
        command, rest = find_command(re.split(r"\s+", re.sub(r"\.\.\..*", "", span).strip()))
        known = {flag for param in getattr(command, "params", []) for flag in (*param.opts, *param.secondary_opts)}
        for word in rest:
            assert not word.startswith("--") or word in known | {"--debug", "--help"}, f"{page_name(page)}: {span}"


# What a command needs beside the core, by how it begins.
NEEDS = {"export": "onnx", "serve": "serve", "verify": "hf"}


@pytest.mark.parametrize("page", [ROOT / "README.md", *TRANSLATIONS], ids=page_name)
def test_readmes_name_the_extra_where_it_is_needed(page):
    named = set()
    for part in re.split(r"^##+ .+$", page.read_text(encoding="utf-8"), flags=re.M):
        for command, extra in NEEDS.items():
            if re.search(rf"^litebert {command} |`litebert {command} (?!--help)[^`]*/", part, flags=re.M):
                extras = re.findall(r'pip install -e "\.\[([\w,]+)\]"', part)
                assert any(extra in found.split(",") for found in extras), f"{page_name(page)}: {command} needs {extra}"
                named.add(extra)
    assert named == {*NEEDS.values()}


def test_wrong_commands_are_noticed():
    for line in ("pretran", "params --no-such-option", "corpus build a --format docx", "serve --port x"):
        with pytest.raises(Exception, match=r"."):
            check(line.split())
    check(["params", "albert-base", "--json"])


def test_commands_are_taken_out_of_lines():
    block = Block(
        "x.md", 1, "bash", "cat a.txt | litebert predict tag --json > b  # why\nA=1 torchrun -m litebert plan \\\n  x\n"
    )
    assert block.commands() == [
        ["cat", "a.txt"],
        ["litebert", "predict", "tag", "--json"],
        ["A=1", "torchrun", "-m", "litebert", "plan", "x"],
    ]
    assert litebert_arguments(block.commands()[2]) == ["plan", "x"]
    assert litebert_arguments(["KEY=1", "litebert", "doctor"]) == ["doctor"]
    assert litebert_arguments(["make", "test"]) is None
    console = Block("x.md", 1, "console", "$ litebert doctor\nlitebert 0.1\n")
    assert console.commands() == [["litebert", "doctor"]]
