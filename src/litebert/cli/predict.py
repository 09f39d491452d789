"""`litebert predict`: every ability of a model from the command line, for arguments, files and pipes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli import app
from litebert.cli.early import check_models, without_garbage_collection
from litebert.cli.predict_input import Row, read_rows
from litebert.cli.terminal import one_line_json, visible
from litebert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from litebert.text.tokenizer import Tokenizer

predict_app = typer.Typer(
    help="Ask a model: raw text in, plain answers out. Texts are arguments, or lines of --file or of a pipe.",
    no_args_is_help=True,
)
app.add_typer(predict_app, name="predict")

Model = Annotated[str, typer.Option("--model", "-m", help="A model folder, a Hub name, or the package's default.")]
Runtime = Annotated[
    str, typer.Option(help="auto (the fastest), torch, or for an exported folder onnx, onnx-fp32, onnx-int8.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0: one for each core that the process may use.")]
File = Annotated[Path | None, typer.Option("--file", "-f", help="One text per line, or JSON lines with the fields.")]
Whole = Annotated[bool, typer.Option("--whole", help="Take the whole file or pipe for one text.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per input.")]
Texts = Annotated[list[str] | None, typer.Argument(help="One or more texts.")]


@predict_app.command("fill-mask")
def fill_mask(
    text: Texts = None,
    top: Annotated[int, typer.Option(help="How many candidates per mask.")] = 5,
    joint: Annotated[bool, typer.Option("--joint", help="Also fill several masks together.")] = False,
    file: File = None,
    whole: Whole = False,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """What may stand where a text says [MASK]: litebert predict fill-mask "the sky is [MASK]"."""
    from litebert.cli.predict_show import show_masks

    rows = read_rows([(t,) for t in text or []], file, ("text",), whole)
    _answer("fill_mask", rows, {"top": top, "joint": joint}, show_masks, (model, runtime, device, threads), as_json)


@predict_app.command("sentence-order")
def sentence_order(
    a: Annotated[str | None, typer.Argument(help="The text that should come first.")] = None,
    b: Annotated[str | None, typer.Argument(help="The text that should follow.")] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Score both orders and weigh the answers.")] = False,
    file: File = None,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """The probability that A comes before B; files hold lines such as {"a": "...", "b": "..."}."""
    from litebert.cli.predict_show import show_order

    rows = read_rows([] if a is None else [(a,) if b is None else (a, b)], file, ("a", "b"))
    _answer("sentence_order", rows, {"symmetric": symmetric}, show_order, (model, runtime, device, threads), as_json)


@predict_app.command()
def coherence(
    text: Texts = None,
    group: Annotated[int, typer.Option(help="Sentences on either side of a boundary.")] = 2,
    file: File = None,
    whole: Whole = False,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """How well a text hangs together, boundary by boundary: litebert predict coherence --file essay.txt --whole."""
    from litebert.cli.predict_show import show_coherence

    rows = read_rows([(t,) for t in text or []], file, ("text",), whole)
    _answer("coherence", rows, {"group": group}, show_coherence, (model, runtime, device, threads), as_json)


@predict_app.command()
def embed(
    text: Texts = None,
    pooling: Annotated[str, typer.Option(help="mean or cls.")] = "mean",
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.")] = False,
    file: File = None,
    whole: Whole = False,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Texts as vectors; without --json, how similar they are to each other."""
    from litebert.cli.predict_show import show_embeddings

    rows = read_rows([(t,) for t in text or []], file, ("text",), whole)
    options = {"pooling": pooling, "normalize": normalize}
    settings = (model, runtime, device, threads)
    if as_json:
        _answer("embed", rows, options, lambda row, result: "", settings, as_json)
    else:
        _print(show_embeddings(visible(list(_results("embed", rows, options, settings)))))


@predict_app.command()
def classify(
    text: Texts = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for models of pairs.")] = None,
    file: File = None,
    whole: Whole = False,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """The label of a text; pairs in files are lines such as {"text": "...", "pair": "..."}."""
    from litebert.cli.predict_show import show_labels

    rows = read_rows([(t, pair) if pair is not None else (t,) for t in text or []], file, ("text", "pair"), whole, 1)
    _answer("classify", rows, {}, show_labels, (model, runtime, device, threads), as_json)


@predict_app.command()
def tag(
    text: Texts = None,
    split: Annotated[str, typer.Option(help="words, or spaces for text whose words are already apart.")] = "words",
    file: File = None,
    whole: Whole = False,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """A tag for every word, and the entities that they make."""
    from litebert.cli.predict_show import show_tags

    rows = read_rows([(t,) for t in text or []], file, ("text",), whole)
    _answer("tag", rows, {"split": split}, show_tags, (model, runtime, device, threads), as_json)


@predict_app.command()
def answer(
    question: Annotated[str | None, typer.Argument(help="The question.")] = None,
    context: Annotated[str | None, typer.Argument(help="The text that holds the answer.")] = None,
    top: Annotated[int, typer.Option(help="How many candidates.")] = 3,
    threshold: Annotated[
        float | None, typer.Option(help="No answer where its score is above this; by default the model's own.")
    ] = None,
    file: File = None,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """The stretch of a context that answers a question; with a question alone, --file or a pipe is the context."""
    from litebert.cli.predict_show import show_answer

    rows: Iterator[Row]
    if question is not None and context is None:
        rows = ((where, {"question": question, **row}) for where, row in read_rows([], file, ("context",), whole=True))
    else:
        given = [] if question is None or context is None else [(question, context)]
        rows = read_rows(given, file, ("question", "context"))
    options = {"top": top, "threshold": threshold}
    _answer("answer", rows, options, show_answer, (model, runtime, device, threads), as_json)


@predict_app.command()
def choose(
    passage: Annotated[str | None, typer.Argument(help="The passage.")] = None,
    question: Annotated[str | None, typer.Argument(help='The question, perhaps with a gap "_"; may be "".')] = None,
    options: Annotated[list[str] | None, typer.Argument(help="Two or more options.")] = None,
    file: File = None,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Which option fits; files hold lines such as {"passage": "...", "question": "...", "options": ["...", "..."]}."""
    from litebert.cli.predict_show import show_choice

    given: list[tuple[Any, ...]] = [] if passage is None else [(passage, question or "", options or [])]
    rows = read_rows(given, file, ("passage", "question", "options"))
    _answer("choose", rows, {}, show_choice, (model, runtime, device, threads), as_json)


@predict_app.command()
def attention(
    text: Texts = None,
    pair: Annotated[str | None, typer.Option(help="A second text beside the first.")] = None,
    application: Annotated[int, typer.Option(help="Which application of a layer to show; -1: the last.")] = -1,
    head: Annotated[int | None, typer.Option(help="Which head to show; by default the mean of all.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Only the first so many tokens.")] = 128,
    file: File = None,
    model: Model = "default",
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Who looks at whom; --json prints the weights of every head in every application."""
    from litebert.cli.predict_show import show_attention

    rows = read_rows([(t, pair) if pair is not None else (t,) for t in text or []], file, ("text", "pair"), False, 1)

    def show(row: dict[str, Any], result: Any) -> RenderableType:
        return show_attention(result, application, head)

    _answer("attention", rows, {"max_tokens": max_tokens}, show, (model, runtime, device, threads), as_json)


def _answer(
    ability: str,
    rows: Iterator[Row],
    options: dict[str, Any],
    show: Callable[[dict[str, Any], Any], RenderableType],
    settings: tuple[str, str, str, int],
    as_json: bool,
) -> None:
    """Print the answer to each row as soon as its group is done."""
    for row, result in _results(ability, rows, options, settings):
        if as_json:
            print(one_line_json(result.as_dict()), flush=True)
        else:
            _print(show(visible(row), visible(result)))


def _results(
    ability: str, rows: Iterator[Row], options: dict[str, Any], settings: tuple[str, str, str, int]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """(fields, result) of each row in order; rows of a long file are read and answered in groups."""
    from itertools import islice

    group: list[Row] = list(islice(rows, 1))  # a mistake of the input shows before a model is loaded
    model, runtime, device, threads = settings
    check_models(model)
    with without_garbage_collection():
        from litebert.predict.predictor import Predictor

    predictor = Predictor(model, runtime=runtime, device=device, threads=threads)
    warned = False
    while group:
        jobs = []
        for where, fields in group:
            try:
                jobs.append(predictor.job(ability, **fields, **options))
            except InputError as error:
                raise InputError(f"{where}{error}") from None
        if not warned:
            _warn_of_unknown(predictor.tokenizer, group, model)
            warned = True
        for (_, fields), result in zip(group, predictor.run(jobs), strict=True):
            if isinstance(result, Exception):
                raise result
            yield fields, result
        group = list(islice(rows, 256))


def _warn_of_unknown(tokenizer: Tokenizer, rows: list[Row], model: str) -> None:
    """Say so where a good part of the text is unknown: the default model, which is English, answers Korean as well."""
    texts = [value for _, fields in rows for value in fields.values() if isinstance(value, str)]
    ids = [piece for text in texts for piece in tokenizer.encode(text[:10_000], allow_special=True)]
    unknown = ids.count(tokenizer.unk_id)
    if 4 * unknown > len(ids):
        print(
            f"note: {unknown} of {len(ids)} tokens are unknown to the vocabulary of the model ({model}), and its "
            "answer means little; was it trained on another language?",
            file=sys.stderr,
        )


def _print(renderable: RenderableType) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False).print(renderable)
