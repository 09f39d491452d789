"""The documentation as data: pages, their links and anchors, their blocks of code.

A block is run unless a comment on the line before its fence says why not; both are invisible to readers:

    <!-- not run: needs a GPU -->
    <!-- run with: --set steps=2 -->      added to each command of the block, to make it short

`python` blocks of a page share their names, `bash` blocks hold `litebert` commands, `console` blocks the same after
`$ ` with output in between, and `yaml` blocks are configs of a run.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"docs/cli.md", "docs/api.md"}
RUNNABLE = ("python", "bash", "console", "yaml")
# The files of a repository's root that people read. Anyone may add more; docs/ is taken whole.
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
# README.md in other languages: test_translations.py holds their commands equal, so they need not run again.
TRANSLATIONS = sorted(ROOT.glob("README.*.md"))
SHOWS_COMMAND = re.compile(r"(\$ )?(litebert|torchrun|\S*python) ")
COMMENT = re.compile(r"<!-- (not run|run with): (.+?) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, first line, and what the comment before it says."""

    page: str
    line: int
    language: str
    text: str
    not_run: str | None = None
    run_with: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Every shell command as a list of words: 'cat a | litebert predict tag' -> [[cat, a], [litebert, ...]]."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        elif self.language != "bash":
            lines = [line for line in lines if SHOWS_COMMAND.match(line)]
        return [command for line in lines for command in split_commands(line)]


def split_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line; what is behind > and < belongs to none."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    command: list[str] = []
    redirected = False
    for word in lexer:
        if word and set(word) <= set("|;&<>"):  # "" is an argument
            redirected = word[0] in "<>"
            if not redirected and command:
                yield command
                command = []
        elif not redirected:
            command.append(word)
    if command:
        yield command


def litebert_arguments(command: list[str]) -> list[str] | None:
    """What a command hands to litebert, or None: torchrun ... -m litebert pretrain x -> [pretrain, x]."""
    while command and re.match(r"[A-Z_]+=", command[0]):  # variables of the environment
        command = command[1:]
    if command[:1] == ["litebert"]:
        return command[1:]
    if "litebert" in command and command[command.index("litebert") - 1] == "-m":
        return command[command.index("litebert") + 1 :]
    return None


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page."""
    found, lines, row = [], path.read_text(encoding="utf-8").splitlines(), 0
    while row < len(lines):
        opened = re.match(r"( *)(```+) *(\w*)", lines[row])
        if opened is None:
            row += 1
            continue
        indent, fence, language = opened.groups()
        end = next(i for i in range(row + 1, len(lines)) if lines[i].strip() == fence)
        said = COMMENT.fullmatch(lines[row - 1].strip()) if row else None
        found.append(
            Block(
                page_name(path),
                row + 1,
                language,
                "\n".join(line.removeprefix(indent) for line in lines[row + 1 : end]) + "\n",
                said[2] if said and said[1] == "not run" else None,
                tuple(shlex.split(said[2])) if said and said[1] == "run with" else (),
            )
        )
        row = end + 1
    return found


def prose(path: Path) -> str:
    """A page without its fenced blocks and comments, line by line as it was."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^( *)(```+).*?^\1\2 *$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)


def links(path: Path) -> list[str]:
    """The targets of a page's links and images."""
    text = re.sub(r"`+[^`]*`+", "", prose(path))
    return re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text) + re.findall(r"(?:href|src)=\"([^\"]+)\"", text)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule, and those that it sets itself."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    text = prose(path)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        seen[slug] += 1
        found.add(slug if seen[slug] == 1 else f"{slug}-{seen[slug] - 1}")
    return found | set(re.findall(r"(?:id|name)=\"([^\"]+)\"", text))
