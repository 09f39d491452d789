"""Write docs/cli.md and docs/api.md from the command line and the docstrings themselves.

    python tools/docs_reference.py           # write both
    python tools/docs_reference.py --check   # exit 1 if a page is not what would be written

tests/docs/test_reference.py fails when they are not current.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main

import litebert
from litebert.cli import app, list_commands

DOCS = Path(__file__).resolve().parent.parent / "docs"
WRITTEN = "<!-- Written by tools/docs_reference.py (`make reference`); change the code instead. -->"


# ---------------------------------------------------------------------------------------------------------------------
# The commands


def cli_page() -> str:
    """docs/cli.md: every command with its arguments and options."""
    root = typer.main.get_command(app)
    lines = ["# Commands", "", WRITTEN, "", root.help or "", "", root.epilog or "", "", "| | |", "|---|---|"]
    commands = [(("litebert", *words), command) for words, command in list_commands().items() if not command.hidden]
    for path, command in commands:
        name = " ".join(path)
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {_sentence(command.help)} |")
    for path, command in commands:
        lines += ["", f"## {' '.join(path)}", "", _prose(command.help), "", *_usage(path, command)]
        rows = [_parameter(command, param) for param in command.params if not param.hidden]
        if rows:
            lines += ["", "| | default | |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _usage(path: tuple[str, ...], command: Any) -> list[str]:
    words = list(path)
    for param in command.params:
        if param.param_type_name == "argument":
            word = _argument_word(param) + ("..." if param.nargs == -1 else "")
            words.append(word if param.required else f"[{word}]")
        elif param.required:
            words += [param.opts[0], _value_word(command, param)]
    return ["```text", " ".join([*words, "[OPTIONS]"]), "```"]


def _parameter(command: Any, param: Any) -> str:
    if param.param_type_name == "argument":
        name = f"`{_argument_word(param)}`"
    else:
        name = ", ".join(f"`{flag}`" for flag in param.opts)
        if param.secondary_opts:
            name += " / " + ", ".join(f"`{flag}`" for flag in param.secondary_opts)
        if not param.is_flag:
            name += f" {_cell(_value_word(command, param))}"
    text = _cell(_prose(param.help or ""))
    if getattr(param, "envvar", None):
        text += f" Or the variable `{param.envvar}`."
    if getattr(param, "multiple", False) and "several times" not in text:
        text += " May be given several times."
    default = param.default
    if param.required:
        shown = "(needed)"
    elif default is None or default == () or (default is False and not param.secondary_opts):
        shown = ""
    elif isinstance(default, bool):
        shown = f"`{(param.opts if default else param.secondary_opts)[0]}`"
    else:
        shown = f"`{default}`"
    return f"| {name} | {_cell(shown)} | {text} |"


def _argument_word(param: Any) -> str:
    return str(param.metavar or param.name).upper().rstrip(".")


def _value_word(command: Any, param: Any) -> str:
    """What stands for the value of an option: --steps N, --format auto|lines."""
    if param.metavar:
        return str(param.metavar)
    # The function's own annotation: typer's objects differ from version to version.
    for part in _parts(typing.get_type_hints(command.callback)[param.name]):
        if typing.get_origin(part) is typing.Literal:
            return "|".join(map(str, typing.get_args(part)))
        if part in (int, float):
            return "N"
        if part is Path:
            return "PATH"
    return "TEXT"


def _parts(annotation: Any) -> Iterator[Any]:
    """A type and what it is made of: list[Path] | None -> itself, list[Path], Path, None."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)


# ---------------------------------------------------------------------------------------------------------------------
# The names of the package

# Part of the package -> its heading, in the order of the flow.
PARTS = {
    "text": "Text",
    "model": "Models",
    "pretraining": "Pretraining",
    "finetuning": "Fine-tuning",
    "evaluation": "Evaluation",
    "predict": "Prediction",
    "bulk": "Bulk scoring",
    "export": "Export",
    "report": "Reports",
    "errors": "Errors",
}


def api_page() -> str:
    """docs/api.md: every name of litebert.__all__, by part."""
    by_part: dict[str, list[str]] = {part: [] for part in PARTS}
    for name, module in litebert._MODULE_OF.items():
        by_part[module.split(".")[1]].append(name)
    lines = ["# Python", "", WRITTEN, ""]
    lines += [
        "Every name below is imported from `litebert` itself (`from litebert import load_model`) and loaded when it is",
        "first used, so that `import litebert` is instant. `litebert.__version__` is the version.",
    ]
    shown: set[type] = set()
    for part, heading in PARTS.items():
        lines += ["", f"## {heading}"]
        for name in by_part[part]:
            lines += ["", f"### {name}", "", *_name(name, shown)]
    return "\n".join(lines) + "\n"


def _name(name: str, shown: set[type]) -> list[str]:
    value = getattr(litebert, name)
    if inspect.isclass(value):
        return _class(name, value, shown)
    if inspect.isfunction(value):
        return _function(name, value)
    return [f"A dictionary; its keys are {', '.join(f'`{key}`' for key in value)}."]


def _function(name: str, function: Callable[..., Any]) -> list[str]:
    return ["```text", _signature(name, function), "```", "", _prose(inspect.getdoc(function) or "")]


def _class(name: str, value: type, shown: set[type]) -> list[str]:
    if issubclass(value, Exception):
        return [f"{_prose(inspect.getdoc(value) or '')} Its base is `{value.__bases__[0].__name__}`."]
    lines = []
    if dataclasses.is_dataclass(value):
        lines += [_prose(inspect.getdoc(value) or ""), "", *_fields(value)]
    else:
        lines += ["```text", _signature(name, value), "```", "", _prose(inspect.getdoc(value) or "")]
    rows = []
    for method_name, raw in vars(value).items():
        method = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
        # __doc__, not getdoc: what torch says about every forward is of no use here.
        if method_name.startswith("_") or not (method.__doc__ or method_name == "forward"):
            continue
        if isinstance(method, property):
            rows.append(f"| `.{method_name}` | {_cell(_sentence(method.__doc__))} |")
        elif inspect.isfunction(method):
            called = re.sub(r" -> .*$", "", _signature(method_name, method, one_line=True))
            owner = name if isinstance(raw, classmethod | staticmethod) else ""
            rows.append(f"| `{owner}.{_cell(called)}` | {_cell(_sentence(method.__doc__))} |")
    if rows:
        lines += ["", "| | |", "|---|---|", *rows]
    for nested in _nested(value):
        if nested not in shown:
            shown.add(nested)
            lines += ["", f"**{nested.__name__}.** {_prose(inspect.getdoc(nested) or '')}", "", *_fields(nested)]
    return lines


def _nested(value: type) -> Iterator[type]:
    """Dataclasses that are fields of a config and not public names of their own: DataConfig of RunConfig."""
    if dataclasses.is_dataclass(value):
        for part in typing.get_type_hints(value).values():
            for kind in (part, *typing.get_args(part)):
                if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__name__ not in litebert.__all__:
                    yield kind


def _fields(value: type) -> list[str]:
    comments, hints = _field_comments(value), typing.get_type_hints(value)
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for field in dataclasses.fields(value):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            shown = ""
        else:
            shown = "(needed)" if default is dataclasses.MISSING else f"`{default!r}`"
        kind = str(field.type)
        if typing.get_origin(hints[field.name]) is typing.Literal:
            kind = " | ".join(map(repr, typing.get_args(hints[field.name])))
        comment = _cell(_plain(comments.get(field.name, "")))
        rows.append(f"| `{field.name}` | `{_cell(kind)}` | {_cell(shown)} | {comment} |")
    return rows


def _field_comments(value: type) -> dict[str, str]:
    """The comment above (`#: ...`) or behind (`# ...`) each field."""
    source = textwrap.dedent(inspect.getsource(value))
    lines, found = source.splitlines(), {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip()
        above: list[str] = []
        row = node.lineno - 2
        while lines[row].strip().startswith("#:"):
            above.insert(0, lines[row].strip().removeprefix("#:").strip())
            row -= 1
        comment = " ".join(above) or behind.lstrip("#").strip()
        if comment:
            found[node.target.id] = comment
    return found


def _signature(name: str, value: Callable[..., Any], one_line: bool = False) -> str:
    signature = inspect.signature(value)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    text = str(signature.replace(parameters=parameters))
    text = re.sub(r"'([^']*)'(?=[,)\s]|$)", lambda m: m[1] if _is_annotation(text, m) else m[0], text)
    text = re.sub(r"<function .*? at 0x\w+>", "...", text)
    if inspect.isclass(value):
        text = re.sub(r" -> None$", "", text)
    return name + text if one_line or len(name + text) <= 110 else _wrapped(name, text)


def _is_annotation(text: str, match: re.Match[str]) -> bool:
    # 'str' after a colon or an arrow is an annotation kept as text; after = it is a default.
    return text[: match.start()].rstrip().endswith((":", "->"))


def _wrapped(name: str, text: str) -> str:
    """A long signature, one parameter per line."""
    depth, parts, start, end = 0, [], 1, text.rindex(")")
    for i in range(1, end):
        depth += text[i] in "[({"
        depth -= text[i] in "])}"
        if text[i] == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:end].strip())
    return name + "(\n" + "".join(f"    {part},\n" for part in parts) + text[end:]


# ---------------------------------------------------------------------------------------------------------------------


def _prose(text: str) -> str:
    """A docstring as Markdown: indented examples become code."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("    "):
            paragraphs.append("```text\n" + textwrap.dedent(paragraph) + "\n```")
        else:
            paragraphs.append(_plain(paragraph))
    return "\n\n".join(paragraphs)


def _plain(text: str) -> str:
    # [MASK] and <pad> are words here, not links and tags.
    text = re.sub(r"(?<!`)\[(MASK|CLS|SEP)\](?!`)", r"`[\1]`", text)
    return re.sub(r"(?<![`<])<(\w+)>(?!`)", r"`<\1>`", text)


def _sentence(text: str | None) -> str:
    return _plain(inspect.cleandoc(text or "").split("\n\n")[0].replace("\n", " "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    return {DOCS / "cli.md": cli_page(), DOCS / "api.md": api_page()}


def main() -> int:
    """Write the pages, or with --check say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is not current")
    check = parser.parse_args().check
    stale = 0
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"{path.relative_to(DOCS.parent)} is not current: run `make reference`")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
