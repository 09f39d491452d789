"""`litebert corpus show`: examples as a person reads them, and what a recipe makes of a store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli.corpus import corpus_app
from litebert.cli.options import Json

if TYPE_CHECKING:
    from rich.text import Text

    from litebert.pretraining.show import ShownExample, ShownPiece

COLOURS = {"mask": "bold yellow", "random": "bold red", "kept": "bold green"}


@corpus_app.command()
def show(
    store: Annotated[Path, typer.Argument(help="Folder of the token store.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder or file of its tokenizer; without it, no text and no masks.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many examples to print.")] = 3,
    recipe: Annotated[str, typer.Option(help="paper or google.")] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field of the recipe: --set max_length=128.")
    ] = None,
    row_tokens: Annotated[int, typer.Option(help="Tokens of a packed row.")] = 4096,
    seed: Annotated[int, typer.Option(help="Of the run to look at.")] = 0,
    as_json: Json = False,
) -> None:
    """Print a few training examples of a store, with their masks and labels, and what the recipe makes of it."""
    from litebert.config import override, to_dict
    from litebert.pretraining.batches import Batches
    from litebert.pretraining.chapters import Source
    from litebert.pretraining.recipes import named_recipe
    from litebert.pretraining.show import measure_masks, measure_store, pick_examples
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer

    chosen = named_recipe(recipe, override({}, settings or []))
    shown: list[ShownExample] = []
    if tokenizer is None:
        source = Source(TokenStore.open(store), 0, chosen, row_tokens=row_tokens, seed=seed)
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
    print_statistics(console, facts, recipe)
    if tokenizer is None:
        console.print("\nWith --tokenizer you also see examples and masks.", style="dim")


def print_example(console: Any, number: int, example: ShownExample) -> None:
    """One example: a heading, then each segment with its masks."""
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


def print_statistics(console: Any, facts: dict[str, Any], recipe: str) -> None:
    """The figures as tables."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("documents", f"{facts['documents']:,}   tokens each: {_spread(facts['document_tokens'])}")
    table.add_row("sentences", f"{facts['sentences']:,}   tokens each: {_spread(facts['sentence_tokens'])}")
    table.add_row("tokens", f"{facts['tokens']:,}")
    part = "one epoch" if facts["chapters"] == 1 else f"the first of {facts['chapters']} chapters of an epoch"
    used = f"{facts['text_used']:.1%} of its text"
    table.add_row("sequences", f"{facts['sequences']:,} in {part} with {used} (recipe {recipe})")
    most = max(entry["sequences"] for entry in facts["histogram"]) or 1
    for entry in facts["histogram"]:
        share = entry["sequences"] / max(facts["sequences"], 1)
        bar = "█" * round(30 * entry["sequences"] / most)
        table.add_row("", f"{entry['from']:>5}-{entry['to']:<5} {bar:<30} {share:6.1%}")
    order = facts["order"]
    none = f", none {order['none']:.1%}" if order["none"] else ""
    table.add_row("order", f"0 {order['0']:.1%}, 1 {order['1']:.1%}{none}")
    rows = f"rows of {facts['row_tokens']:,} tokens, {facts['sequences_per_row']} sequences each"
    table.add_row("packing", f"{facts['packing_efficiency']:.2%} full ({rows})")
    if "masks" in facts:
        masks = facts["masks"]
        table.add_row("predicted", f"{masks['predicted']:.2%} of {masks['sampled_tokens']:,} tokens")
        for n, share in masks["ngrams"].items():
            table.add_row(f"{n}-grams", f"{share['realised']:.2%}   expected {share['expected']:.2%}")
        for name, share in masks["replaced"].items():
            words = {"mask": "to [MASK]", "random": "to random", "kept": "kept"}[name]
            table.add_row(words, f"{share['realised']:.2%}   expected {share['expected']:.2%}")
    console.print(table)
    if len(facts.get("masks", {}).get("ngrams", ())) > 1:
        console.print("Where a sequence's budget ends, its last n-gram is shortened.", style="dim")


def _spread(quantiles: dict[str, int]) -> str:
    low, middle, high, most = (quantiles[name] for name in ("10 %", "median", "90 %", "most"))
    return f"median {middle:,}, most of them {low:,} to {high:,}, at most {most:,}"
