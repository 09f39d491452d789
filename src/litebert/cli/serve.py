"""`litebert serve`: models over HTTP, and the page to try them on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.early import check_models
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.predict.predictor import Predictor


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Model folders, or NAME=FOLDER; the first is the default. None: the package's own model."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 allows other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="LITEBERT_API_KEY", help="Key that requests must send.", show_default=False)
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Further host name of this server (besides localhost and its address); * allows any. Repeatable."
        ),
    ] = None,
    runtime: Annotated[str, typer.Option(help="auto, torch, onnx, onnx-fp32 or onnx-int8.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads for the model; 0 chooses.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, for example batch_tokens=8192.")
    ] = None,
) -> None:
    """Serve models on this machine: a page at /, one endpoint per ability, OpenAPI at /docs."""
    from litebert.config import build, override
    from litebert.extras import EXTRAS, require

    for module in EXTRAS["serve"]:
        require(module, "litebert serve")
    from litebert.serve.config import ServeConfig
    from litebert.serve.server import serve as run

    named = name_models(models or [])
    flags = {"host": host, "port": port, "api_key": api_key, "allowed_hosts": allowed_host or []}
    config = build(ServeConfig, override(flags, settings or []))
    if models:
        check_models(*named.values())

    def load() -> Mapping[str, Predictor]:
        from litebert.predict.predictor import Predictor

        return {name: Predictor(path, runtime=runtime, device=device, threads=threads) for name, path in named.items()}

    def announce(address: str) -> None:
        print(f"{', '.join(named)} at {address}   (Ctrl-C stops it)", flush=True)

    run(load, config, announce)


def name_models(models: list[str]) -> dict[str, str]:
    """Models by name: ["runs/sst2", "qa=runs/squad"] -> {"sst2": "runs/sst2", "qa": "runs/squad"}."""
    named: dict[str, str] = {}
    for text in models or ["default"]:
        name, equals, path = text.partition("=") if not Path(text).exists() else ("", "", "")
        if equals and not (name and path):
            raise ConfigError(f"{text}: expected NAME=FOLDER")
        if not equals:
            folder = Path(text).resolve()
            # A run's folder says more than the "best" or "model" in it.
            name, path = (folder.parent if folder.name in ("best", "model") else folder).name, text
        if name in named:
            raise ConfigError(f"two models are called {name!r}; tell them apart with NAME=FOLDER")
        named[name] = path
    return named
