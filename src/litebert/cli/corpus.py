"""`litebert corpus`: build token stores from text, check them, look into them, and generate text to try things on."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.cli import CommandGroup, app
from litebert.cli.options import Json, StoreTokenizer, TextField, check_out_file, check_out_folder
from litebert.cli.terminal import ProgressView, print_facts
from litebert.errors import DataError

if TYPE_CHECKING:
    from rich.text import Text

    from litebert.pretraining.show import ShownExample, ShownPiece
    from litebert.text.build import BuildReport, Progress

corpus_app = typer.Typer(cls=CommandGroup, help="Build, check and inspect token stores.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")

MOST_UNKNOWN = 0.05  # of the tokens, before a warning
COLOURS = {"mask": "bold yellow", "random": "bold red", "kept": "bold green"}


@corpus_app.command()
def build(
    sources: Annotated[
        list[str], typer.Argument(help="Files, folders, patterns, URLs such as s3://..., or - for standard input.")
    ],
    tokenizer: Annotated[Path, typer.Option(help="Folder or file of the tokenizer.")],
    out: Annotated[Path, typer.Option(help="Folder to write: the token store.")],
    format: Annotated[
        Literal["auto", "lines", "paragraphs", "jsonl", "parquet", "wikiextractor", "wikiextractor-json"],
        typer.Option(help="Format of the text. lines: one sentence per line. paragraphs: split into sentences."),
    ] = "auto",
    text_field: TextField = "text",
    language: Annotated[str, typer.Option(help="Language, for splitting into sentences.")] = "auto",
    workers: Annotated[int, typer.Option(help="Worker processes; 0: one per core.")] = 0,
    on_error: Annotated[
        Literal["stop", "skip"], typer.Option(help="stop, or skip bad documents and count them.")
    ] = "stop",
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Drop exact duplicate documents.")] = False,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="local, or ray: on a cluster.")] = "local",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing store.")] = False,
    shard: Annotated[
        str | None,
        typer.Option(help="i/n: build the i-th of n shares, for job arrays; the last one completes the store."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn text into a token store. If interrupted, rerun the same command to resume."""
    check_out_folder(out)
    from litebert.text.build import BuildOptions, build_store, parse_shard

    options = BuildOptions(format=format, text_field=text_field, language=language, deduplicate=deduplicate)
    began = time.monotonic()
    with ProgressView() as view:
        report = build_store(
            sources,
            tokenizer,
            out,
            options,
            workers=workers,
            on_error=on_error,
            engine=engine,
            overwrite=overwrite,
            shard=None if shard is None else parse_shard(shard),
            on_progress=lambda progress: _show_progress(view, progress, began),
        )
    if not report.missing:
        report.notes.extend(warnings_about(out, tokenizer))
    if as_json:
        print(json.dumps({"store": str(out), **asdict(report)}, indent=2, ensure_ascii=False))
    else:
        print_report(report, out)


def warnings_about(store: Path, tokenizer: Path) -> list[str]:
    """A warning if the vocabulary does not know the text: a model learns nothing from unknown tokens."""
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer

    share = TokenStore.open(store).share_of(Tokenizer.load(tokenizer).unk_id)
    if share <= MOST_UNKNOWN:
        return []
    return [
        f"warning: {100 * share:.0f} % of the tokens are unknown to {tokenizer}; was it trained on another language? "
        "Train one on this text: litebert tokenizer train"
    ]


@corpus_app.command()
def verify(
    stores: Annotated[list[Path], typer.Argument(help="Token stores.", metavar="STORE...")],
    tokenizer: StoreTokenizer = None,
    as_json: Json = False,
) -> None:
    """Compare every file of token stores with its checksum, and list the damaged ones."""
    from rich.console import Console

    from litebert.text.store import TokenStore, find_damage
    from litebert.text.tokenizer import Tokenizer

    vocabulary = None if tokenizer is None else Tokenizer.load(tokenizer)
    found: dict[str, list[str]] = {}
    for store in stores:
        began = time.monotonic()
        with Console(stderr=True).status(str(store)) as status:
            damage = found[str(store)] = find_damage(store, lambda file: status.update(f"reading {file}"))
        if not damage:
            opened = TokenStore.open(store, vocabulary)
            if not as_json:
                size = sum(part["bytes"] for part in opened.manifest["parts"])
                counts = f"{opened.num_documents:,} documents, {opened.num_tokens:,} tokens, {size:,} bytes"
                print(f"{store}: intact ({counts}, {time.monotonic() - began:.1f} s)")
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    if any(found.values()):
        raise DataError("\n  ".join(message for damage in found.values() for message in damage))


@corpus_app.command()
def show(
    store: Annotated[Path, typer.Argument(help="A token store.")],
    tokenizer: StoreTokenizer = None,
    examples: Annotated[int, typer.Option(min=0, help="Number of examples to print.")] = 3,
    recipe: Annotated[str, typer.Option(help="How examples are made: paper or google.")] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value in the recipe, such as max_length=128.")
    ] = None,
    row_tokens: Annotated[int, typer.Option(help="Tokens per packed row.")] = 4096,
    seed: Annotated[int, typer.Option(help="Random seed: the run to look at.")] = 0,
    as_json: Json = False,
) -> None:
    """Print a few training examples of a store with their masks and labels, and statistics of all."""
    from litebert.config import override, to_dict
    from litebert.pretraining.batches import Batches
    from litebert.pretraining.chapters import StoreRows
    from litebert.pretraining.recipes import named_recipe
    from litebert.pretraining.show import measure_masks, measure_store, pick_examples
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer

    chosen = named_recipe(recipe, override({}, settings or []))
    shown: list[ShownExample] = []
    if tokenizer is None:
        source = StoreRows(TokenStore.open(store), 0, chosen, row_tokens=row_tokens, seed=seed)
        facts = measure_store(source)
    else:
        vocabulary = Tokenizer.load(tokenizer)
        opened = TokenStore.open(store, vocabulary)
        batches = Batches(opened, vocabulary, chosen, tokens_per_batch=row_tokens, row_tokens=row_tokens, seed=seed)
        facts = measure_store(batches.sources[0]) | {"masks": measure_masks(batches)}
        shown = pick_examples(batches, vocabulary, examples)
    if as_json:
        about = {"store": str(store), "recipe": {"name": recipe, **to_dict(chosen)}, "seed": seed}
        facts = {**about, **facts, "examples": [asdict(example) for example in shown]}
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, example in enumerate(shown, 1):
        print_example(console, number, example)
    print_statistics(facts, recipe)
    if tokenizer is None:
        console.print("\n--tokenizer FOLDER also shows examples and masks.", style="dim")


@corpus_app.command()
def generate(
    documents: Annotated[int, typer.Option(min=1, help="Number of documents to generate.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Use sentences that never occur without --held-out, for evaluation.")
    ] = False,
    excerpts: Annotated[
        bool, typer.Option("--excerpts", help="Stories begin and end anywhere, so position reveals nothing.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write; by default standard output.")] = None,
) -> None:
    """Generate short stories: one sentence per line, a blank line between documents."""
    check_out_file(out)
    from litebert.files import write_atomic
    from litebert.text.generate import generate_documents, join_documents

    stories = generate_documents(documents, seed=seed, split="held-out" if held_out else "train", excerpts=excerpts)
    if out is None:
        for number, story in enumerate(stories):  # one by one, so that `| head` need not wait
            print(("\n" if number else "") + join_documents([story]), end="")
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, join_documents(stories))
        print(f"{out}: {documents:,} documents")


def print_report(report: BuildReport, out: Path) -> None:
    """Print the summary of a build, and a few of the documents that were skipped."""
    rows = [
        ("store", str(out)),
        ("documents", f"{report.documents:,}"),
        ("sentences", f"{report.sentences:,}"),
        ("tokens", f"{report.tokens:,}"),
        ("text", f"{report.text_bytes:,} bytes"),
        ("read as", ", ".join(f"{name} ({_files(count)})" for name, count in report.formats.items())),
    ]
    if report.duplicates:
        rows.append(("duplicates", f"{report.duplicates:,} documents dropped"))
    rows.append(("skipped", ", ".join(f"{n:,} {kind}" for kind, n in report.skipped.items()) or "nothing"))
    if report.parts_reused == report.parts:
        rows.append(("parts", f"{report.parts:,}, all built before"))
    elif report.parts_reused:
        rows.append(("parts", f"{report.parts:,}, {report.parts_reused:,} of them built before"))
    if report.missing:
        names = ", ".join(report.missing)
        rows.append(("unfinished", f"missing shards: {names}; the counts above are those of this shard"))
    print_facts([*rows, ("seconds", f"{report.seconds:.1f}")])
    for note in report.notes:
        print(note, file=sys.stderr)
    for problem in report.problems:
        print(f"skipped: {problem}", file=sys.stderr)


def _show_progress(view: ProgressView, progress: Progress, began: float) -> None:
    speed = f"{progress.text_bytes / 1e6:,.0f} MB of text, "
    speed += f"{progress.text_bytes / 1e6 / max(time.monotonic() - began, 1e-3):.1f} MB/s"
    view.update(Path(progress.source).name, progress.done_bytes, progress.total_bytes, speed)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def print_example(console: Any, number: int, example: ShownExample) -> None:
    """Print one example: a heading, then each segment with its masks."""
    from rich.text import Text

    label = "" if example.order is None else f"order {example.order}, "
    heading = f"Example {number}: document {example.document:,}, {example.tokens} tokens, {label}{example.meaning}"
    console.print(Text(heading, "bold"))
    for name, pieces in zip("AB", example.segments, strict=False):
        console.print(Text.assemble((f"{name}  ", "bold cyan"), describe_pieces(pieces)), soft_wrap=True)
    console.print()


def describe_pieces(pieces: list[ShownPiece]) -> Text:
    """Text with its masks: "the {cat→MASK} sat", "the {cat→dog} sat", "the {cat} sat" where cat is to be predicted."""
    from rich.text import Text

    text = Text()
    for token in pieces:
        space = " " if token.piece.startswith("▁") and text else ""
        word = token.piece.removeprefix("▁")
        if token.kind == "text":
            text.append(space + word)
            continue
        seen = {"mask": "→MASK", "kept": "", "random": "→" + (token.seen.removeprefix("▁") or "▁")}[token.kind]
        text.append(space).append(f"{{{word or '▁'}{seen}}}", COLOURS[token.kind])
    return text


def print_statistics(facts: dict[str, Any], recipe: str) -> None:
    """Print the statistics of a store."""
    part = "one epoch" if facts["chapters"] == 1 else f"the first of {facts['chapters']} chapters of an epoch"
    used = f"{facts['text_used']:.1%} of its text"
    rows = [
        ("documents", f"{facts['documents']:,}   tokens each: {_spread(facts['document_tokens'])}"),
        ("sentences", f"{facts['sentences']:,}   tokens each: {_spread(facts['sentence_tokens'])}"),
        ("tokens", f"{facts['tokens']:,}"),
        ("sequences", f"{facts['sequences']:,} in {part} with {used} (recipe {recipe})"),
    ]
    most = max(entry["sequences"] for entry in facts["histogram"]) or 1
    for entry in facts["histogram"]:
        share = entry["sequences"] / max(facts["sequences"], 1)
        bar = "█" * round(30 * entry["sequences"] / most)
        rows.append(("", f"{entry['from']:>5}-{entry['to']:<5} {bar:<30} {share:6.1%}"))
    order = facts["order"]
    packed = f"rows of {facts['row_tokens']:,} tokens, {facts['sequences_per_row']} sequences each"
    none = f", none {order['none']:.1%}" if order["none"] else ""
    rows.append(("order", f"0 {order['0']:.1%}, 1 {order['1']:.1%}{none}"))
    rows.append(("packing", f"{facts['packing_efficiency']:.2%} full ({packed})"))
    if masks := facts.get("masks"):
        words = {"mask": "to [MASK]", "random": "to random", "kept": "kept"}
        named = {f"{n}-grams": share for n, share in masks["ngrams"].items()}
        named |= {words[name]: share for name, share in masks["replaced"].items()}
        rows.append(("predicted", f"{masks['predicted']:.2%} of {masks['sampled_tokens']:,} tokens"))
        rows += [(name, f"{s['realised']:.2%}   expected {s['expected']:.2%}") for name, s in named.items()]
    print_facts(rows)
    if masks and len(masks["ngrams"]) > 1:
        print("The last n-gram of a sequence is cut to fit its masking budget.")


def _spread(quantiles: dict[str, int]) -> str:
    low, middle, high, most = (quantiles[name] for name in ("10 %", "median", "90 %", "most"))
    return f"median {middle:,}, 80 % within {low:,} to {high:,}, at most {most:,}"
