"""`litebert serve`: models over HTTP, with a page to try them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli import app
from litebert.cli.options import Device, Runtime, Threads, check_models
from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.predict.predictor import Predictor


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Model folders, or NAME=FOLDER; the first is the default. Without any: the built-in model."
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FOLDER of an adapter of the first model, or MODEL:NAME=FOLDER. Repeatable."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 allows other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="LITEBERT_API_KEY", help="API key that requests must send.", show_default=False)
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of this server; * allows any. May be repeated."),
    ] = None,
    runtime: Runtime = "auto",
    device: Device = "auto",
    threads: Threads = 0,
    static: Annotated[
        Path | None,
        typer.Option(help="Serve only the files of an export with a page: the model runs in browsers."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value in the server's settings, such as batch_tokens=8192.")
    ] = None,
) -> None:
    """Serve models over HTTP: a page at /, one endpoint per ability, OpenAPI at /docs."""
    if static is not None:
        from litebert.serve.static import serve_static

        if models:
            raise ConfigError("--static: serves files only; leave the models out")
        serve_static(static, host, port, lambda address: _announce(str(static), address))
        return
    from litebert.config import build, override
    from litebert.extras import EXTRAS, require
    from litebert.remote import DEFAULT, shipped_adapters

    for module in EXTRAS["serve"]:
        require(module, "litebert serve")
    from litebert.serve.config import ServeConfig
    from litebert.serve.server import serve as run

    named = name_models(models or [])
    flags = {"host": host, "port": port, "api_key": api_key, "allowed_hosts": allowed_host or []}
    config = build(ServeConfig, override(flags, settings or []))
    adapters = name_adapters(adapter or [], named)
    if models:
        check_models(*named.values())

    def load() -> Mapping[str, Predictor]:
        from litebert.predict.predictor import Predictor

        loaded = {
            name: Predictor(path, runtime=runtime, device=device, threads=threads) for name, path in named.items()
        }
        for (model, name), folder in adapters.items():
            loaded[model].add_adapter(name, folder)
        return loaded

    served = [*((model, name) for model, path in named.items() if path == DEFAULT for name in shipped_adapters())]
    names = [*named, *(f"{model}:{name}" for model, name in dict.fromkeys([*adapters, *served]))]
    run(load, config, lambda address: _announce(", ".join(names), address))


def _announce(what: str, address: str) -> None:
    print(f"{what} at {address}   (Ctrl-C to stop)", flush=True)


def name_adapters(adapters: list[str], models: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Adapters by model and name: ["mood=runs/mood", "qa:dates=runs/dates"] -> {("default", "mood"): ..., ...}."""
    found: dict[tuple[str, str], str] = {}
    for text in adapters:
        left, _, folder = text.partition("=")
        model, _, name = left.rpartition(":")
        model = model or next(iter(models))
        if not (name and folder):
            raise ConfigError(f"--adapter {text}: expected NAME=FOLDER or MODEL:NAME=FOLDER")
        if model not in models:
            raise ConfigError(f"--adapter {text}: no model {model!r}; there is: {', '.join(models)}")
        if (model, name) in found:
            raise ConfigError(f"--adapter {text}: the name {name!r} is given twice")
        found[model, name] = folder
    return found


def name_models(models: list[str]) -> dict[str, str]:
    """Models by name: ["runs/sst2", "qa=runs/squad"] -> {"sst2": "runs/sst2", "qa": "runs/squad"}."""
    named: dict[str, str] = {}
    for text in models or ["default"]:
        name, equals, path = text.partition("=") if not Path(text).exists() else ("", "", "")
        if equals and not (name and path):
            raise ConfigError(f"{text}: expected NAME=FOLDER")
        if not equals:
            folder = Path(text).resolve()
            # runs/mine/best -> mine
            name, path = (folder.parent if folder.name in ("best", "model") else folder).name, text
        if name in named:
            raise ConfigError(f"two models are called {name!r}; give them names with NAME=FOLDER")
        named[name] = path
    return named
