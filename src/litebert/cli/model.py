"""`litebert params`, `convert`, `verify`, `push`, `adapter`: count, convert, check, upload and merge models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli import CommandGroup, app
from litebert.cli.options import Json, MicroBatch, check_files, check_models, check_out_folder
from litebert.cli.terminal import make_table

if TYPE_CHECKING:
    from litebert.model.count import PaperModel


@app.command()
def params(
    model: Annotated[str | None, typer.Argument(help="A preset, a config file, a model folder or a Hub name.")] = None,
    micro_batch_tokens: MicroBatch = 8192,
    as_json: Json = False,
) -> None:
    """Count the parameters of a model; without one, of every model in the paper, beside the printed figure."""
    from litebert.model.count import PaperModel, paper_figure, paper_models

    models = paper_models()
    if model is not None:
        from litebert.pretraining.config import find_model_config

        config = find_model_config(model)
        models = [PaperModel("", model, config, paper_figure(config))]
    rows = [_count(entry, micro_batch_tokens) for entry in models]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print_params(rows, micro_batch_tokens)


@app.command()
def convert(
    source: Annotated[
        str, typer.Argument(help="A model folder, a TensorFlow checkpoint or its folder, or a Hub name.")
    ],
    target: Annotated[Path, typer.Argument(help="Folder to write: the model.")],
    head: Annotated[str | None, typer.Option(help="The head to keep; by default that of the source.")] = None,
    dtype: Annotated[str, typer.Option(help="Type of the weights: float32, float16 or bfloat16.")] = "float32",
    model_config: Annotated[
        Path | None, typer.Option(help="The model's config file; by default the one next to the weights.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value in the model's config, such as num_attention_heads=32.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
    as_json: Json = False,
) -> None:
    """Convert a checkpoint (Hub folder, pytorch_model.bin, TensorFlow files) into a model folder."""
    check_models(source)
    check_out_folder(target)
    from litebert.config import override
    from litebert.model.config import check_fields
    from litebert.model.convert import convert_model

    changes = override({}, settings or [])
    check_fields(changes)
    result = convert_model(source, target, head=head, dtype=dtype, overwrite=overwrite, config=model_config, **changes)
    if note := _complete_tokenizer(target, result.copied):
        result.report.notes.append(note)
    if as_json:
        print(json.dumps(result.as_dict(), indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    report = result.report
    console.print(f"{source} -> {target}  {result.head} head, {result.parameters:,} parameters, {dtype}")
    console.print(f"  mapped   {len(report.mapped)} tensors")
    console.print(f"  skipped  {len(report.skipped)}{_shorten(report.skipped)}")
    console.print(f"  missing  {len(report.missing)}{_shorten(report.missing)}")
    for note in report.notes:
        console.print(f"  note     {note}")
    if result.copied:
        console.print(f"  copied   {', '.join(result.copied)}")


def _complete_tokenizer(folder: Path, copied: list[str]) -> str | None:
    """Add to a bare vocabulary, as in Google's files, the tokenizer files that transformers needs."""
    from litebert.errors import DataError
    from litebert.text.tokenizer import Tokenizer

    if copied not in (["spiece.model"], ["vocab.txt"]):
        return None
    try:
        Tokenizer.load(folder).save(folder)
    except DataError as error:
        return f"the vocabulary was copied but does not load: {error}"
    return None


@app.command()
def verify(
    model: Annotated[str, typer.Argument(help="A model folder or a Hub name.")],
    sequences: Annotated[int, typer.Option(min=1, help="Number of random sequences to compare on.")] = 4,
    length: Annotated[
        int | None, typer.Option(min=1, help="Tokens per sequence; by default 128, or the model's limit.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest difference allowed.")] = 1e-4,
    as_json: Json = False,
) -> None:
    """Run the same weights in transformers and in litebert, and print the differences."""
    check_models(model)
    from litebert.model.convert import verify_model

    result = verify_model(model, batch=sequences, length=length)
    agree = all(row.within(tolerance) for row in result)
    if as_json:
        print(json.dumps([row.as_dict() for row in result], indent=2))
    else:
        from rich.console import Console

        table = make_table("output", "largest difference", "largest value")
        for row in result:
            table.add_row(row.output, f"{row.difference:.2e}", f"{row.magnitude:.2e}")
        console = Console(highlight=False)
        console.print(table)
        console.print(
            f"[green]agree[/] within {tolerance:g}" if agree else f"[red]differ[/] by more than {tolerance:g}"
        )
    if not agree:
        raise typer.Exit(1)


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="A model or adapter folder, such as RUN/best or RUN/adapter.")],
    name: Annotated[str, typer.Argument(help="Its name on the Hub, owner/name; made if there is none.")],
    private: Annotated[bool, typer.Option("--private", help="Make the new repository private.")] = False,
    revision: Annotated[str | None, typer.Option(help="A branch to upload to, made if there is none.")] = None,
    message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
) -> None:
    """Upload a model or an adapter to the Hub. Log in first: hf auth login."""
    check_files(folder)
    from litebert.remote import push_folder

    print(push_folder(folder, name, private=private or None, revision=revision, message=message))


adapter = typer.Typer(
    cls=CommandGroup, help="Adapters made by `litebert finetune --adapter` or PEFT.", no_args_is_help=True
)
app.add_typer(adapter, name="adapter")


@adapter.command()
def merge(
    folder: Annotated[str, typer.Argument(help="An adapter folder, such as RUN/adapter, or default:NAME.")],
    out: Annotated[Path, typer.Option(help="Folder to write: the merged model.")],
    base: Annotated[str | None, typer.Option(help="The base model; by default the one the adapter names.")] = None,
) -> None:
    """Merge an adapter into its base model: a plain model folder for export, transformers and everything else."""
    check_models(folder)
    check_out_folder(out)
    from litebert.predict.load import merge_folder

    print(f"model: {merge_folder(folder, out, base)}")


def _count(entry: PaperModel, tokens: int) -> dict[str, Any]:
    from litebert.model.config import preset
    from litebert.model.count import count_parameters, training_memory

    count = count_parameters(entry.config)
    memory = training_memory(entry.config)
    return {
        "table": entry.table,
        "name": entry.name,
        "parameters": count.total,
        "parameters_with_heads": count.with_heads,
        "paper": entry.paper,
        "embeddings": count.embeddings,
        "projection": count.projection,
        "attention": count.attention,
        "ffn": count.ffn,
        "pooler": count.pooler,
        "heads": count.heads,
        "bert_large_ratio": round(count_parameters(preset("bert-large")).total / count.total, 2),
        "training_memory": {
            "weights_gradients_moments": memory.total(0),
            "activations_per_token_bf16": memory.activations_per_token,
            "tokens": tokens,
            "total": memory.total(tokens),
        },
    }


def _print_params(rows: list[dict[str, Any]], tokens: int) -> None:
    from rich.console import Console

    kinds = ("embeddings", "projection", "attention", "ffn", "pooler")
    table = make_table("model", "parameters", "paper", *kinds, "BERT-large /", "training GB")
    last = None
    for row in rows:
        if row["table"] != last and row["table"]:
            table.add_row(f"[bold cyan]{row['table']}[/]")
            last = row["table"]
        parts = [f"{row[part]:,}" for part in kinds]
        table.add_row(
            row["name"],
            f"[bold]{row['parameters']:,}[/]",
            row["paper"],
            *parts,
            f"{row['bert_large_ratio']:.1f}x",
            f"{row['training_memory']['total'] / 1e9:.1f}",
        )
    console = Console(highlight=False)
    if console.width < 150 and not console.is_terminal:
        console = Console(highlight=False, width=150)
    console.print(table)
    console.print(
        "parameters: without heads; for ALBERT exactly those of the released checkpoints. paper: as printed, "
        "in rounded millions (its 60M and 235M for xlarge and xxlarge exceed the checkpoints). "
        "training GB: estimate for fp32 weights, gradients and two moments, and the bf16 activations of "
        f"{tokens:,} tokens.",
        style="dim",
    )


def _shorten(names: list[str], most: int = 3) -> str:
    if not names:
        return ""
    return ": " + ", ".join(names[:most]) + (f", ... ({len(names) - most} more)" if len(names) > most else "")
