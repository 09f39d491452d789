"""MkDocs hooks: pages of the repository's root join the site, and a page that needs the network fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Files that a repository keeps at its root -> their page.
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
# Whatever a browser fetches by itself; links for people are not meant.
FETCHED = re.compile(r"""(<script[^>]+src=|<img[^>]+src=|<link[^>]+rel="?stylesheet[^>]+href=)["']?(https?:)?//""")


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages, with their links as seen from the site."""
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace("](README.md", "](index.md")
        for other, its_page in ROOT_PAGES.items():
            text = text.replace(f"]({other}", f"]({its_page}")
        files.append(File.generated(config, page, content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse pages that need the network."""
    found = FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri}: loads something from elsewhere: {output[found.start() :][:120]}")
    return output
