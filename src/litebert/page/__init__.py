"""The page: files that `litebert serve` sends, and that an export for the browser includes.

Both show the same panels; `server.js` asks a server for its answers, `browser.js` a worker in the tab. Parts of
`index.html` between <!--server--> and <!--/server-->, or <!--browser--> and <!--/browser-->, are for one of them only.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Literal

Host = Literal["server", "browser"]

FOLDER = files("litebert").joinpath("page")
ENGINE = ("engine.js", "weights.js", "thread.js", "engine.wasm", "engine-relaxed.wasm")
ONLY = {
    "server": {"server.js"},
    "browser": {
        *("browser.js", "worker.js", "abilities.js", "exits.js", "numbers.js", "tokens.js", "ort.js", "offline.js"),
        *(f"engine/{name}" for name in ENGINE),
    },
}


def page_files(host: Host) -> list[str]:
    """The names of the files that a page of this kind is made of, with folders."""
    names = [each.name for each in FOLDER.iterdir() if each.name.endswith((".html", ".css", ".js"))]
    names += [f"panels/{each.name}" for each in FOLDER.joinpath("panels").iterdir() if each.name.endswith(".js")]
    names += [f"engine/{name}" for name in ENGINE]
    others = set().union(*(only for kind, only in ONLY.items() if kind != host))
    return sorted(set(names) - others)


def read_page(name: str, host: Host) -> bytes:
    """One file of the page; the stylesheet starts with the colours that it shares with the reports."""
    data = FOLDER.joinpath(name).read_bytes()
    if name.endswith(".css"):
        return files("litebert").joinpath("colors.css").read_bytes() + data
    if name == "index.html":
        other = "browser" if host == "server" else "server"
        text = re.sub(rf"[ ]*<!--{other}-->.*?<!--/{other}-->\n", "", data.decode(), flags=re.DOTALL)
        return re.sub(rf"[ ]*<!--/?{host}-->\n", "", text).encode()
    return data
