"""MkDocs hooks: the root's pages, the examples, our colours and the default model in a page join the site.

A page that needs the network fails. What the model's page needs of npm comes from a node_modules folder
(LITEBERT_WEB_RUNTIME, or that of the tests) or is downloaded; without both, or with LITEBERT_WEB_RUNTIME=none, which
saves a minute, the page says so.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from litebert.errors import LitebertError

ROOT = Path(__file__).resolve().parent.parent
# Files that a repository keeps at its root -> their page.
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
# Whatever a browser fetches by itself; links for people are not meant.
FETCHED = re.compile(r"""(<script[^>]+src=|<img[^>]+src=|<link[^>]+rel="?stylesheet[^>]+href=)["']?(https?:)?//""")


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages, with their links as seen from the site, and the examples."""
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace("](README.md", "](index.md")
        for other, its_page in ROOT_PAGES.items():
            text = text.replace(f"]({other}", f"]({its_page}")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "examples.md", content=examples_page()))
    files.append(File.generated(config, "site/colors.css", content=colors()))
    return files


def colors() -> str:
    """The colours of our own pages, light and dark, under the names by which the theme's button switches."""
    source = (ROOT / "src/litebert/colors.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{\n(.*?)\}", source, flags=re.S)
    return f'[data-md-color-scheme="default"] {{\n{light}}}\n[data-md-color-scheme="slate"] {{\n{dark}}}\n'


def examples_page() -> str:
    """The scripts of examples/ on one page: what each says of itself, then its code."""
    parts = ["# Examples", "Scripts of `examples/` that run on a CPU; the tests run them."]
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        about = ast.get_docstring(ast.parse(source)) or ""
        code = source.split('"""', 2)[2].strip() if source.startswith('"""') else source
        title = path.stem.replace("_", " ").capitalize()
        parts += [f"## {title}", about.split("\n\n")[0], f'```python title="examples/{path.name}"\n{code}\n```']
    return "\n\n".join(parts) + "\n"


def on_post_build(config: Any) -> None:
    """Put the default model into the site as a page that runs in the browser."""
    target = Path(config["site_dir"]) / "try"
    wanted = os.environ.get("LITEBERT_WEB_RUNTIME", "")
    given = [wanted, ROOT / "tests/export/web/node_modules"]
    runtime = next((Path(each) for each in given if each and Path(each).is_dir()), None)
    if wanted == "none":
        return
    try:
        export_page(target, runtime)
    except LitebertError as error:
        print(f"docs: without the model in try/: {error}")  # a warning would stop a strict build


def export_page(target: Path, runtime: Path | None) -> None:
    """The page, without the files that it does not load."""
    from litebert.export.web import FILES, export_web

    export_web("default", target, page=True, runtime=runtime, overwrite=True)  # over docs/try/index.html
    for form in ("fp32", "int8"):
        (target / FILES[form]).unlink()
    (target / "spiece.model").unlink(missing_ok=True)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse pages that need the network."""
    found = FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri}: loads something from elsewhere: {output[found.start() :][:120]}")
    return output
