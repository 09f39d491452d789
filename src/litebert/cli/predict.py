"""`litebert predict`: one command per ability, generated from the table of abilities."""

from __future__ import annotations

import inspect
import itertools
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli import LateGroup, app
from litebert.cli.options import Device, Encoding, Runtime, Threads, check_models, check_out_file
from litebert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from litebert.predict.ability import Ability, Parameter
    from litebert.predict.files import Row, Source
    from litebert.predict.predictor import Predictor

# Options of every command, after those of its ability.
COMMON: dict[str, tuple[Any, Any]] = {
    "file": (
        Annotated[
            Path | None,
            typer.Option(
                "--file",
                "-f",
                help="Input file: .csv, .tsv, .jsonl, .json, .parquet, or one text per line; - reads the pipe.",
            ),
        ],
        None,
    ),
    "column": (
        Annotated[
            list[str] | None,
            typer.Option(help="Column of --file to read: NAME, or for several inputs INPUT=NAME each."),
        ],
        None,
    ),
    "whole": (Annotated[bool, typer.Option("--whole", help="Read the whole file or pipe as one text.")], False),
    "encoding": (Encoding, "utf-8"),
    "out": (
        Annotated[
            Path | None, typer.Option(help="File to write: the input rows with the answers (.csv, .tsv or .jsonl).")
        ],
        None,
    ),
    "as_json": (Annotated[bool, typer.Option("--json", help="Print one JSON object per input.")], False),
    "model": (
        Annotated[
            str,
            typer.Option(
                "--model",
                "-m",
                help="A model folder or Hub name, or default:NAME, an adapter of the built-in model; by default the "
                "built-in model, with the adapter that fits.",
            ),
        ],
        "default",
    ),
    "runtime": (Runtime, "auto"),
    "device": (Device, "auto"),
    "threads": (Threads, 0),
}


class PredictGroup(LateGroup):
    """The commands of the abilities; `litebert --help` loads none of them."""

    @staticmethod
    def make() -> dict[str, Any]:
        """Every ability as a command."""
        from litebert.predict.abilities import ABILITIES

        inner = typer.Typer()
        for ability in ABILITIES.values():
            inner.command(ability.title)(command_of(ability))
        made: dict[str, Any] = typer.main.get_command(inner).commands  # type: ignore[attr-defined]
        return made

    @staticmethod
    def also() -> Mapping[str, str]:
        """Other names that people try."""
        from litebert.predict.abilities import ABILITIES

        return {name: ability.title for ability in ABILITIES.values() for name in ability.also}


predict_app = typer.Typer(
    cls=PredictGroup,
    help="Ask a model about texts: arguments, a --file, or a pipe.",
    no_args_is_help=True,
)
app.add_typer(predict_app, name="predict")


def command_of(ability: Ability) -> Callable[..., None]:
    """A function for typer: its signature has the ability's parameters, how to show the answer, and COMMON."""
    from litebert.predict.show import show_options

    parameters = {each.name: (_annotation(ability, each), _default(each)) for each in ability.parameters.values()}
    shown = {
        name: (Annotated[hint.__origin__, typer.Option(help=hint.__metadata__[0])], default)
        for name, (hint, default) in show_options(ability.name).items()
    }
    signature = {**parameters, **shown, **COMMON}

    def command(**given: Any) -> None:
        arguments = {name: _value(ability.parameters[name], given[name]) for name in parameters}
        options = {name: given[name] for name in shown}
        _run(ability, arguments, options, **{name: given[name] for name in COMMON})

    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind, annotation=hint, default=value) for name, (hint, value) in signature.items()]
    )
    command.__doc__ = _help(ability)
    command.__annotations__ = {name: hint for name, (hint, _) in signature.items()}
    return command


def _annotation(ability: Ability, parameter: Parameter) -> Any:
    """A required input is an argument (the only one may be repeated), everything else an option."""
    kinds: dict[str, Any] = {
        "whole number": int,
        "number": float,
        "flag": bool,
        "choice": str,
        "text": str,
        "depth": str,
    }
    alone = [each.name for each in ability.inputs if each.required] == [parameter.name]
    if parameter.is_input and parameter.required:
        many = alone or parameter.kind == "texts"
        about = f"{parameter.about} May be repeated." if alone else parameter.about
        return Annotated[list[str] | None if many else str | None, typer.Argument(help=about)]
    kind, shown = kinds[parameter.kind], None
    if parameter.name == "depth" and kind is int:  # where auto makes no sense, the Predictor says so in words
        kind, shown = str, "N"
    choices = f" One of: {', '.join(parameter.choices)}." if parameter.choices else ""
    flag = f"--{parameter.name.replace('_', '-')}"
    # No --no-... for flags: leaving one out says the same.
    option = typer.Option(flag, help=parameter.about + choices, metavar=shown)
    return Annotated[kind | None if parameter.optional else kind, option]


def _value(parameter: Parameter, given: Any) -> Any:
    """What was typed, as Python would have it: a depth is a number or auto."""
    return int(given) if parameter.name == "depth" and given is not None and given.isdigit() else given


def _default(parameter: Parameter) -> Any:
    return None if parameter.required else parameter.default


def _help(ability: Ability) -> str:
    """The docstring, and a line to try."""
    example = ability.examples[0]
    words = []
    for each in ability.inputs:
        if each.name in example:
            value = example[each.name]
            words += [shlex.quote(text) for text in ([value] if isinstance(value, str) else value)]
    return f"{ability.about}\n\nExample: litebert predict {ability.title} {' '.join(words)}"


def _run(
    ability: Ability,
    arguments: dict[str, Any],
    show_options: dict[str, Any],
    *,
    file: Path | None,
    column: list[str] | None,
    whole: bool,
    encoding: str,
    out: Path | None,
    as_json: bool,
    model: str,
    runtime: str,
    device: str,
    threads: int,
) -> None:
    """Read the inputs, run the model, and print or write the answers group by group."""
    from rich.text import Text

    from litebert.cli.terminal import one_line_json, visible
    from litebert.predict.abilities import shipped_model
    from litebert.predict.files import Source, read_rows, writer_of
    from litebert.predict.show import show_each, show_together

    source = Source(file, tuple(column or ()), whole, encoding)
    rows, options = _rows(ability, arguments, source, read_rows)
    if out is not None and as_json:
        raise InputError("--json prints the answers and --out writes them; choose one")
    check_out_file(out)
    write = None if out is None else writer_of(out)
    first = next(rows)  # mistakes in the input are reported before a model is loaded
    answering = shipped_model(model, ability.name, {**options, **first.fields})
    if answering != model:
        model = answering
        print(f"model: {model}", file=sys.stderr)
    check_models(model)
    from litebert.predict.predictor import Predictor

    predictor = Predictor(model, runtime=runtime, device=device, threads=threads)
    results = _results(predictor, ability, itertools.chain([first], rows), options)
    if write is not None:
        write(results, predictor.task)
    elif as_json:
        for _, result in results:
            print(one_line_json(result.as_dict()), flush=True)
    elif together := show_together(ability.name):
        _print(together(visible([(row.fields, result) for row, result in results])))
    else:
        for row, result in results:
            _print(show_each(ability.name)(visible(row.fields), visible(result), **show_options))
            if (depth := getattr(result, "depth", None)) is not None:
                _print(Text(f"  answered after {depth} of {predictor.runtime.config.num_hidden_layers} layers", "dim"))


def _rows(
    ability: Ability, arguments: dict[str, Any], source: Source, read_rows: Callable[..., Iterator[Row]]
) -> tuple[Iterator[Row], dict[str, Any]]:
    """The inputs, from arguments or from the source, and the options."""
    inputs, required = ability.inputs, [each for each in ability.inputs if each.required]
    options = {name: value for name, value in arguments.items() if not ability.parameters[name].is_input}
    optional = {each.name: arguments[each.name] for each in inputs if not each.required}
    optional = {name: value for name, value in optional.items() if value is not None}
    given = {each.name: arguments[each.name] for each in required if arguments[each.name] not in (None, [])}
    texts = arguments[required[0].name]
    if len(required) == 1 and texts:  # one input per argument
        rows = [{required[0].name: text, **optional} for text in texts]
    elif given:
        rows = [{**given, **optional}]
    else:
        rows = []
        if optional:
            name = next(iter(optional))
            raise InputError(f"--{name}: goes with a text given as an argument; in files it is a column")
    return read_rows(ability, rows, source), options


def _results(
    predictor: Predictor, ability: Ability, rows: Iterator[Row], options: dict[str, Any]
) -> Iterator[tuple[Row, Any]]:
    """(row, result) in order; rows of a long file are read and answered in groups."""
    warned = False
    size = 1  # the first answer of a pipe need not wait for a group
    while group := list(itertools.islice(rows, size)):
        size = 256
        jobs = []
        for row in group:
            try:
                jobs.append(predictor.job(ability.name, **row.fields, **options))
            except InputError as error:
                raise InputError(f"{row.where}{error}") from None
        if not warned:
            _warn_of_unknown(predictor, group)
            warned = True
        for row, result in zip(group, predictor.run(jobs), strict=True):
            if isinstance(result, Exception):
                raise result
            yield row, result


def _warn_of_unknown(predictor: Predictor, rows: list[Row]) -> None:
    """Warn if much of the text is unknown to the vocabulary: the English default model answers Korean too."""
    texts = [value for row in rows for value in row.fields.values() if isinstance(value, str)]
    tokenizer = predictor.tokenizer
    ids = [piece for text in texts for piece in tokenizer.encode(text[:10_000], allow_special=True)]
    unknown = ids.count(tokenizer.unk_id)
    if 4 * unknown > len(ids):
        print(
            f"note: {unknown} of {len(ids)} tokens are unknown to the model's vocabulary ({predictor.name}), so its "
            "answer means little; was it trained on another language?",
            file=sys.stderr,
        )


def _print(renderable: RenderableType) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False).print(renderable)
