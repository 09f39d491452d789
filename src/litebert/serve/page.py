"""The files of the page over HTTP, and the page that documents the endpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from fastapi import Request as HttpRequest
from fastapi.responses import Response

from litebert.page import page_files, read_page

PAGE_FILES = {"/" if name == "index.html" else f"/{name}": name for name in page_files("server")}
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def page_response(name: str, content: str | None = None) -> Callable[[HttpRequest], Awaitable[Response]]:
    """A handler that serves one file of the package, or content made by code, with an ETag."""
    data = read_page(name, "server") if content is None else content.encode()
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}  # revalidated each time, sent only when changed

    async def respond(request: HttpRequest) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=KINDS[name.rsplit(".", 1)[1]], headers=headers)

    return respond


def docs_page(openapi: dict[str, Any], origin: str, wants_key: bool = False) -> str:
    """Every endpoint with its fields and a command to try it at `origin`, from the OpenAPI description."""
    key = ' -H "Authorization: Bearer $LITEBERT_API_KEY"' if wants_key else ""
    schemas = openapi["components"]["schemas"]
    sections = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            sections.append(_endpoint(path, method.upper(), operation, schemas, origin, key))
    about = "".join(f"<p>{_code(part)}</p>" for part in openapi["info"]["description"].strip().split("\n\n"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>Endpoints · litebert</title>'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="page.css"></head>'
        '<body class="docs"><header><p class="eyebrow"><a href="./">litebert</a> '
        f"{escape(openapi['info']['version'])}</p>"
        f"<h1>Endpoints</h1>{about}<p>The same for machines: "
        '<a href="openapi.json">openapi.json</a>.</p></header>'
        f"<main>{''.join(sections)}</main></body></html>\n"
    )


def _endpoint(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any], origin: str, key: str) -> str:
    about = "".join(f"<p>{_code(part)}</p>" for part in operation.get("description", "").split("\n\n"))
    parts = [f"<h2><small>{method}</small> {escape(path)}</h2>{about}"]
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        reference = (schema.get("oneOf") or [schema])[0]["$ref"]  # of two forms the first, which is ours
        schema = schemas[reference.rsplit("/", 1)[1]]
        example = json.dumps(schema["examples"][0])
        parts.append(
            f'<pre tabindex="0">curl -s {escape(origin + path)} -H "Content-Type: application/json"{escape(key)} \\\n'
            f"  -d {escape(repr(example))}</pre>"
        )
        fields = sorted(schema["properties"].items(), key=lambda item: item[0] == "model")  # last: rarely given
        rows = "".join(_field(name, field, schema.get("required", [])) for name, field in fields)
        parts.append(f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>')
    return f'<section class="card">{"".join(parts)}</section>'


def _field(name: str, field: dict[str, Any], required: list[str]) -> str:
    default = "" if name in required else f"default {json.dumps(field.get('default'))}"
    return (
        f"<tr><th>{escape(name)}</th><td>{escape(_kind(field))}</td><td>{escape(default)}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
    )


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(option) for option in field["anyOf"] if option.get("type") != "null")
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}"
    return {"string": "text", "integer": "number"}.get(str(field.get("type")), str(field.get("type")))


def _code(text: str) -> str:
    """`backticks` as code: everything else is plain text."""
    return "".join(f"<code>{escape(part)}</code>" if i % 2 else escape(part) for i, part in enumerate(text.split("`")))
