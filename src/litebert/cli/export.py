"""`litebert export`: a model folder as files for other runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import Json, check_files, check_models, check_out_folder
from litebert.errors import ConfigError, check_choice
from litebert.folders import beside

if TYPE_CHECKING:
    from litebert.export.folder import ExportedFile, ExportReport

KINDS = ("onnx", "torch-export", "web")


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A model folder or a Hub name.")],
    to: Annotated[
        str, typer.Option(help="onnx (model.onnx), torch-export (model.pt2) or web (a folder for transformers.js).")
    ] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="ONNX: also a file with int8 weights, for CPUs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default MODEL-onnx, beside the model.")] = None,
    attentions: Annotated[
        bool, typer.Option("--attentions", help="ONNX: also output attention maps (uses more memory).")
    ] = False,
    check_data: Annotated[
        Path | None,
        typer.Option(help="ONNX: also compare on this file: the task's data, or one text per line (pairs with a tab)."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing export.")] = False,
    as_json: Json = False,
) -> None:
    """Export a model to ONNX, torch.export or the browser, checked against torch first."""
    check_choice("--to", to, KINDS)
    check_models(model)
    check_files(check_data)
    target = out or _beside(model, to)
    check_out_folder(target)
    if to == "onnx":
        from litebert.export.onnx_file import export_onnx

        report = export_onnx(
            model, target, int8=int8, attentions=attentions, check_data=check_data, overwrite=overwrite
        )
    else:
        for name, given in (("--int8", int8), ("--attentions", attentions), ("--check-data", check_data)):
            if given:
                raise ConfigError(f"{name}: goes with --to onnx only" + (" (web has both)" if to == "web" else ""))
        if to == "web":
            from litebert.export.web import export_web as run_export
        else:
            from litebert.export.torch_package import export_torch as run_export
        report = run_export(model, target, overwrite=overwrite)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(model, report)


def _beside(model: str, to: str) -> Path:
    """The default folder: runs/mine/model -> runs/mine/model-onnx, albert/albert-base-v2 -> albert-base-v2-onnx."""
    path = Path(model)
    suffix = {"onnx": "-onnx", "torch-export": "-torch", "web": "-web"}[to]
    return beside(path, suffix) if path.is_dir() else Path(f"{path.name}{suffix}")


def _print(model: str, report: ExportReport) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{model} -> {report.folder}  {report.head} head, {report.model_parameters:,} parameters")
    for file in report.files:
        console.print(f"  {file.name:16} {file.bytes / 1e6:,.1f} MB, {_weights(file)}")
        for kind, check in (("random", file.check), ("given", file.data_check)):
            if check is None:
                continue
            worst = check.worst
            line = f"    {check.sequences} {kind} inputs: at most {worst.difference:.1e} from torch in {worst.output}"
            line += f" (values up to {worst.magnitude:.2g})"
            if check.agreement is not None:
                line += f", {check.agreement:.1%} of decisions equal"
            console.print(line)
            for name, (torch, exported) in check.scores.items():
                console.print(f"      {name}: {torch:.4f} in torch, {exported:.4f} in the file")
    if any(file.name.startswith("onnx/") for file in report.files):
        console.print(f"next: open {report.folder} with transformers.js (docs/howto/browser.md)")
    elif any(file.name.endswith(".onnx") for file in report.files):
        int8 = any(file.int8_arrays for file in report.files)
        runtime = " --runtime onnx-int8   (without --runtime: fp32)" if int8 else ""
        console.print(f"next: litebert serve {report.folder}{runtime}")


def _weights(file: ExportedFile) -> str:
    if not file.int8_arrays:
        return f"{file.parameters:,} numbers, fp32"
    share = file.int8_parameters / file.parameters
    return f"{file.parameters:,} numbers, {share:.1%} of them int8 in {file.int8_arrays} matrices"
