"""`litebert export`: a model folder as files for other runtimes."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    model: Annotated[str, typer.Argument(help="A model or adapter folder, a Hub name, or default:NAME.")],
    to: Annotated[
        str, typer.Option(help="onnx (model.onnx), torch-export (model.pt2) or web (a folder for transformers.js).")
    ] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="ONNX: also a file with int8 weights, for CPUs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default MODEL-onnx, next to the model.")] = None,
    attentions: Annotated[
        bool, typer.Option("--attentions", help="ONNX: also output attention maps (uses more memory).")
    ] = False,
    check_data: Annotated[
        Path | None,
        typer.Option(help="Also compare on this file: the task's data, or one text per line (pairs with a tab)."),
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Web: add a page that runs the model in the browser, without a server.")
    ] = False,
    runtime: Annotated[
        Path | None,
        typer.Option(help="Web, with --page: a node_modules folder with onnxruntime-web, instead of npm's download."),
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
    _check_options(
        to,
        {"--int8": ("onnx", int8), "--attentions": ("onnx", attentions)}
        | {"--page": ("web", page), "--runtime": ("web", runtime)},
    )
    if check_data is not None and to == "torch-export":
        raise ConfigError("--check-data: goes with --to onnx or web only")
    if runtime is not None and not page:
        raise ConfigError("--runtime: goes with --page only")
    if to == "onnx":
        from litebert.export.onnx_file import export_onnx

        report = export_onnx(
            model, target, int8=int8, attentions=attentions, check_data=check_data, overwrite=overwrite
        )
    elif to == "web":
        from litebert.export.web import export_web

        report = export_web(model, target, page=page, runtime=runtime, check_data=check_data, overwrite=overwrite)
    else:
        from litebert.export.torch_package import export_torch

        report = export_torch(model, target, overwrite=overwrite)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(model, report)


def _check_options(to: str, options: Mapping[str, tuple[str, object]]) -> None:
    """Refuse options that this kind of export does not have."""
    for name, (kind, given) in options.items():
        if given and to != kind:
            hint = " (web has every precision)" if (name, to) == ("--int8", "web") else ""
            raise ConfigError(f"{name}: goes with --to {kind} only{hint}")


def _beside(model: str, to: str) -> Path:
    """The default folder: runs/mine/model -> runs/mine/model-onnx, albert/albert-base-v2 -> albert-base-v2-onnx,
    default:sentiment -> sentiment-onnx."""
    path = Path(model.rpartition(":")[2] if model.startswith("default:") else model)
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
            if check.divergence is not None and check.agreement is not None:
                line += f", KL divergence {max(check.divergence, 0.0):.1e}"
            console.print(line)
            for name, (torch, exported) in check.scores.items():
                console.print(f"      {name}: {torch:.4f} in torch, {exported:.4f} in the file")
    if report.page:
        console.print(f"next: litebert serve --static {report.folder}   (or any other web server)")
    elif any(file.name.startswith("onnx/") for file in report.files):
        console.print(f"next: open {report.folder} with transformers.js (docs/howto/browser.md)")
    elif any(file.name.endswith(".onnx") for file in report.files):
        int8 = any(file.int8_arrays for file in report.files)
        runtime = " --runtime onnx-int8   (without --runtime: fp32)" if int8 else ""
        console.print(f"next: litebert serve {report.folder}{runtime}")


def _weights(file: ExportedFile) -> str:
    small = [f"{numbers / file.parameters:.1%} of them {kind}" for kind, numbers in file.packed.items()]
    if file.int8_arrays:
        small.append(f"{file.int8_parameters / file.parameters:.1%} of them int8 in {file.int8_arrays} matrices")
    return f"{file.parameters:,} numbers, {', '.join(small) or 'fp32'}"
