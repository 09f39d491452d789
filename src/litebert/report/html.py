"""HTML that is escaped by construction: text becomes markup only through `element`, which escapes it.

element("p", "1 < 2", class_="note")     -> <p class="note">1 &lt; 2</p>
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

# Elements without an end tag.
VOID = {"meta", "br", "hr", "wbr"}


class Markup(str):
    """Text that is HTML already, so that it is not escaped again."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def element(name: str, /, *children: Child, **attributes: Any) -> Markup:
    """One element; `class_` and `data_run` become `class` and `data-run`, None is left out, True is bare."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{html.escape(str(value))}"')
    start = f"<{' '.join(parts)}>"
    return Markup(start if name in VOID else f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other: plain text is escaped, markup kept, None left out, lists opened."""
    parts = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(html.escape(child, quote=False))
        elif child is not None:
            parts.append(str(join(*child)))
    return Markup("".join(parts))


def inline_json(data: Any) -> Markup:
    """JSON that may stand inside a script element, whatever its strings hold."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
