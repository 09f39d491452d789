"""`litebert tokenizer`: train a vocabulary, and show how it splits a text."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import CommandGroup, app
from litebert.cli.options import Json, TextField, check_out_folder
from litebert.cli.terminal import ProgressView, make_table
from litebert.errors import ConfigError, DataError
from litebert.files import hold_lock

if TYPE_CHECKING:
    from litebert.text.tokenizer import Encoding, Tokenizer

tokenizer_app = typer.Typer(cls=CommandGroup, help="Train and inspect tokenizers.", no_args_is_help=True)
app.add_typer(tokenizer_app, name="tokenizer")

COLOURS = ("cyan", "magenta", "green", "yellow", "blue")


@tokenizer_app.command()
def train(
    files: Annotated[
        list[str], typer.Argument(help="Text, JSON lines or Parquet files, also .gz .xz .zst; or folders.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write: the tokenizer.")],
    vocab_size: Annotated[int, typer.Option(help="Number of pieces, including special ones.")] = 30_000,
    normalization: Annotated[
        str, typer.Option(help="multilingual (strips accents from Latin letters only) or google (strips all marks).")
    ] = "multilingual",
    lower: Annotated[
        bool | None,
        typer.Option("--lower/--cased", help="Lower-case the text or not; by default only google does."),
    ] = None,
    keep_accents: Annotated[bool, typer.Option("--keep-accents", help="Keep the accents of Latin letters.")] = False,
    character_coverage: Annotated[
        float, typer.Option(help="Share of characters that get a piece; 0.9995 suits Chinese, Japanese and Korean.")
    ] = 0.99995,
    sample: Annotated[int, typer.Option(help="Train on a random sample of this many lines.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    korean_particles: Annotated[
        bool, typer.Option(help="Split words before 는, 에, 을 and other Korean particles.")
    ] = True,
    text_field: TextField = "text",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing tokenizer.")] = False,
    as_json: Json = False,
) -> None:
    """Train a SentencePiece vocabulary with the paper's options. Memory stays constant however large the text is."""
    from litebert.text.normalize import Normalization
    from litebert.text.tokenizer_files import FILES
    from litebert.text.train_vocab import VocabConfig, train_vocab

    def check_free() -> None:
        if not overwrite and any((out / name).exists() for name in FILES):
            raise ConfigError(f"{out}: already holds a tokenizer; --overwrite replaces it")

    check_free()
    check_out_folder(out)
    config = VocabConfig(
        vocab_size=vocab_size,
        normalization=Normalization.named(normalization, lower, strip_accents=not keep_accents),
        character_coverage=character_coverage,
        sample_lines=sample,
        seed=seed,
        korean_particles=korean_particles,
    )
    with locked(out):
        check_free()  # another training may have just finished
        with ProgressView() as view:
            trained = train_vocab(files, config, text_field, view.update)
        trained.tokenizer.save(out)
    facts = {
        "tokenizer": str(out),
        "vocab_size": trained.tokenizer.vocab_size,
        "lines_read": trained.lines_read,
        "lines_used": trained.lines_used,
        "characters_used": trained.characters_used,
        "fingerprint": trained.tokenizer.fingerprint,
    }
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        print(
            f"{out}: {facts['vocab_size']:,} pieces from {trained.lines_used:,} of {trained.lines_read:,} lines "
            f"({trained.characters_used:,} characters)"
        )


@tokenizer_app.command()
def show(
    path: Annotated[Path, typer.Argument(help="Folder or file (spiece.model, vocab.txt) of the tokenizer.")],
    text: Annotated[str, typer.Argument(help="The text to encode; - reads standard input.")],
    special: Annotated[bool, typer.Option("--special", help='Read "[MASK]" and the like as special pieces.')] = False,
    as_json: Json = False,
) -> None:
    """Print the pieces of a text with their ids and character offsets."""
    from litebert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(path)
    if text == "-":
        try:
            text = sys.stdin.read().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input: not valid UTF-8 at byte {error.start}") from None
    encoding = tokenizer.encode_offsets(text, allow_special=special)
    if as_json:
        content = {
            "ids": encoding.ids,
            "pieces": encoding.pieces,
            "offsets": encoding.offsets,
            "decoded": tokenizer.decode(encoding.ids, keep_special=True),
        }
        print(json.dumps(content, ensure_ascii=False))
    else:
        print_encoding(tokenizer, text, encoding)


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the lock of a tokenizer folder. The lock file is next to the folder, which is replaced as a whole."""
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(out.parent / f".{out.name}.lock"))
        except BlockingIOError:
            raise ConfigError(f"{out}: another process is training a tokenizer there; choose another folder") from None
        yield


def print_encoding(tokenizer: Tokenizer, text: str, encoding: Encoding) -> None:
    """Print the pieces in colour on one line, then one row each."""
    from rich.console import Console
    from rich.text import Text

    def colour(position: int) -> str:
        return "bold red" if encoding.ids[position] == tokenizer.unk_id else COLOURS[position % len(COLOURS)]

    console = Console(highlight=False)
    line = Text(" ").join(Text(piece, colour(i)) for i, piece in enumerate(encoding.pieces))
    console.print(line)
    table = make_table("piece", "id", "characters", "text")
    table.columns[-1].justify = "left"
    for i, (start, end) in enumerate(encoding.offsets):
        part = text[start:end]
        shown = part if part.isprintable() else part.encode("unicode_escape").decode()
        table.add_row(Text(encoding.pieces[i], colour(i)), str(encoding.ids[i]), f"{start}-{end}", Text(shown))
    console.print(table)
    unknown = encoding.ids.count(tokenizer.unk_id)
    console.print(f"{len(encoding.ids)} pieces, {unknown} unknown, {len(text)} characters", style="dim")
