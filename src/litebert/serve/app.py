"""The ASGI app: one endpoint per ability, endpoints for operators, and the page."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

import litebert
from litebert.errors import did_you_mean
from litebert.predict.abilities import ABILITIES
from litebert.predict.ability import Ability
from litebert.predict.exits import depths_of
from litebert.serve import schemas
from litebert.serve.batcher import Predictor, language_of_model, runtime_of
from litebert.serve.compat import compat_routes
from litebert.serve.config import ServeConfig
from litebert.serve.gate import Gate
from litebert.serve.page import PAGE_FILES, docs_page, page_response
from litebert.serve.schemas import MistakeResponse, Refusal, Results, describe_mistakes, path_of, request_of, result_of
from litebert.serve.service import Service, encode_array
from litebert.serve.telemetry import CONTENT_TYPE, Metrics, log_event

NUMPY = "application/x-npy"  # vectors as a file of numpy's, for clients that accept it

ABOUT = """Predictions from raw text by the models loaded here.

Send one text or a list of texts; `results` is always a list, in the order of the inputs. Every error has the form
`{"error": {"code": ..., "message": ...}}`: 4xx if the request must change, 429 or 503 if you can send it again later.
"""
REFUSALS: dict[int | str, dict[str, object]] = {
    400: {
        "description": "The body is not valid JSON, or the model does not have this ability.",
        "model": MistakeResponse,
    },
    401: {"description": "The API key is missing or wrong.", "model": MistakeResponse},
    404: {"description": "No such model.", "model": MistakeResponse},
    408: {"description": "The request arrived too slowly.", "model": MistakeResponse},
    413: {"description": "Too many bytes, inputs, tokens or candidates.", "model": MistakeResponse},
    415: {"description": "Not sent as application/json.", "model": MistakeResponse},
    422: {"description": "A field is invalid; the message names it.", "model": MistakeResponse},
    429: {"description": "The queue is full; retry after the seconds in Retry-After.", "model": MistakeResponse},
    503: {"description": "Not ready, overloaded, or shutting down.", "model": MistakeResponse},
    504: {"description": "The model did not finish in time.", "model": MistakeResponse},
}

FORBIDDEN: dict[str, object] = {"description": "The server has no API key.", "model": MistakeResponse}
ADMIN: dict[int | str, dict[str, object]] = {
    **{number: REFUSALS[number] for number in (400, 401, 404, 408, 413, 415, 422)},
    403: FORBIDDEN,
}

operations = APIRouter(tags=["operations"])


def ability_routes() -> APIRouter:
    """One endpoint per ability of the table."""
    router = APIRouter(tags=["abilities"], responses=REFUSALS)
    for ability in ABILITIES.values():
        if ability.name == "similarity":  # one endpoint for two forms of requests: compat.py
            continue
        router.add_api_route(
            path_of(ability),
            _endpoint(ability),
            methods=["POST"],
            name=ability.name,
            description=ability.about,
            response_model=Results[result_of(ability)],  # type: ignore[misc]
        )
    return router


def _endpoint(ability: Ability) -> Callable[..., Awaitable[Response]]:
    async def serve(request: HttpRequest, body: Any) -> Response:
        service: Service = request.app.state.service
        if ability.array and request.headers.get("accept") == NUMPY:
            content = await service.answer(
                body, request.scope["litebert"], lambda model, results: encode_array(ability.array, results)
            )
            return Response(content, media_type=NUMPY)
        content = await service.answer(body, request.scope["litebert"])
        # A finished response: otherwise FastAPI would validate and serialise every float again.
        return Response(content, media_type="application/json")

    serve.__annotations__ = {"request": HttpRequest, "body": request_of(ability), "return": Response}
    return serve


@operations.get("/models", response_model=schemas.Models, responses={401: REFUSALS[401]})
async def models(request: HttpRequest) -> schemas.Models:
    """The loaded models with their abilities and languages; the first is the default."""
    service: Service = request.app.state.service
    loaded = [
        schemas.Loaded(
            name=name,
            abilities=list(predictor.abilities),
            runtime=runtime_of(predictor),
            language=language_of_model(predictor),
            task=_task_of(predictor),
            packaged=getattr(predictor, "packaged", False),
            depths=_depths_of(predictor),
        )
        for name, (_, predictor) in service.models().items()
    ]
    return schemas.Models(models=loaded, version=litebert.__version__)


def _task_of(predictor: Predictor) -> schemas.LoadedTask | None:
    task = getattr(predictor, "task", None)
    if task is None:
        return None
    return schemas.LoadedTask(
        name=task.name, kind=task.kind, labels=list(task.labels), pair=task.pair, scale=task.scale
    )


def _depths_of(predictor: Predictor) -> schemas.LoadedDepths | None:
    runtime = getattr(predictor, "runtime", None)
    if runtime is None:
        return None
    depths = depths_of(runtime.config, runtime.head, getattr(predictor, "rule", None))
    exits, auto = (list(depths.exits), depths.auto) if runtime.any_depth else ([], False)
    usual = getattr(predictor, "depth", None)
    return schemas.LoadedDepths(layers=depths.layers, exits=exits, auto=auto, depth=usual)


@operations.post("/adapters/load", response_model=schemas.Status, responses=ADMIN)
async def load_adapter(request: HttpRequest, body: schemas.NewAdapter) -> schemas.Status:
    """Load an adapter of a model while the server runs; the status is the name that requests give as `model`.

    Only on a server with an API key.
    """
    name = await request.app.state.service.load_adapter(body.name, body.folder, body.model)
    return schemas.Status(status=name)


@operations.post("/adapters/unload", response_model=schemas.Status, responses=ADMIN)
async def unload_adapter(request: HttpRequest, body: schemas.OldAdapter) -> schemas.Status:
    """Unload an adapter; requests that were accepted still get their answers. Only on a server with an API key."""
    return schemas.Status(status=request.app.state.service.unload_adapter(body.name, body.model))


@operations.get("/health", response_model=schemas.Status)
async def health() -> schemas.Status:
    """Whether the process is alive."""
    return schemas.Status(status="ok")


@operations.get("/ready", response_model=schemas.Status, responses={503: REFUSALS[503]})
async def ready(request: HttpRequest) -> schemas.Status:
    """Whether every model is warmed up and works."""
    request.app.state.service.check_ready()
    return schemas.Status(status="ready")


@operations.get("/metrics", response_class=PlainTextResponse, responses={401: REFUSALS[401]})
async def metrics(request: HttpRequest) -> Response:
    """Counters, histograms and queue depth for Prometheus."""
    return Response(request.app.state.service.metrics.expose(), media_type=CONTENT_TYPE)


def create_app(predictors: Mapping[str, Predictor], settings: ServeConfig | None = None) -> FastAPI:
    """An ASGI app that serves predictors by name: create_app({"default": Predictor()})."""
    settings = settings or ServeConfig()
    service = Service(predictors, settings, Metrics())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()
        log_event("closed")

    # Newer versions of FastAPI emit spans, metrics and logs that contain users' paths and texts.
    own: Any = {"telemetry": dict.fromkeys(("tracing", "metrics", "logs", "operation_spans"), False)}
    app = FastAPI(
        title="litebert",
        version=litebert.__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
        **(own if "telemetry" in inspect.signature(FastAPI).parameters else {}),
    )
    app.state.service = service
    app.include_router(ability_routes())
    app.include_router(compat_routes(REFUSALS))
    app.include_router(operations)

    async def docs(request: HttpRequest) -> Response:
        page = docs_page(app.openapi(), str(request.base_url).rstrip("/"), bool(settings.api_key))
        return await page_response("docs.html", page)(request)

    for path, name in PAGE_FILES.items():
        app.get(path, include_in_schema=False)(page_response(name))
    app.get("/docs", include_in_schema=False)(docs)
    app.add_exception_handler(Refusal, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(HTTPException, _refuse_http)
    paths = {path_of(ability) for ability in ABILITIES.values()}
    public = {*PAGE_FILES, "/docs", "/openapi.json", "/health", "/ready"}
    others = {"/models", "/metrics", "/adapters/load", "/adapters/unload", "/v1/embeddings", "/v1/models", "/rerank"}
    endpoints = {*paths, *public, *others}
    app.state.paths = sorted(endpoints - {*PAGE_FILES})
    app.add_middleware(Gate, settings=settings, metrics=service.metrics, endpoints=endpoints, open_paths=public)
    return app


async def _refuse(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response(request.url.path)


async def _refuse_fields(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    mistakes, path = error.errors(), request.url.path
    if mistakes and mistakes[0]["type"] == "json_invalid":
        where = mistakes[0]["loc"][-1]
        reason = mistakes[0].get("ctx", {}).get("error", "")
        return Refusal(400, "invalid_json", f"the body is not valid JSON at character {where}: {reason}").response(path)
    return Refusal(422, "invalid_input", describe_mistakes(mistakes)).response(path)


async def _refuse_http(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = did_you_mean(request.url.path, request.app.state.paths) or ";"
    codes = {404: "not_found", 405: "method_not_allowed", 400: "invalid_json"}
    messages = {
        400: "the body is not valid JSON: it must be UTF-8, without deep nesting or huge numbers",
        404: f"no such path{hint} GET /docs lists the endpoints",
        405: "this path does not allow that method; GET /docs lists the endpoints",
    }
    code, message = codes.get(error.status_code, "refused"), messages.get(error.status_code, str(error.detail))
    return Refusal(error.status_code, code, message, error.headers).response(request.url.path)
