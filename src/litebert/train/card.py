"""The model card of a folder: what the Hub reads first, what a person asks, and the whole config of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.config import write_yaml
from litebert.files import write_atomic


def save_card(
    folder: Path,
    *,
    tags: Sequence[str],
    pipeline: str,
    title: str,
    body: Sequence[str],
    code: Sequence[str],
    elsewhere: str,
    config: Any,
    facts: Mapping[str, Any],
) -> Path:
    """Write README.md; `body` are lines of Markdown, `code` shows the use in litebert, `elsewhere` in transformers."""
    lines = [
        "---",
        "library_name: litebert",
        f"tags: [{', '.join(tags)}]",
        f"pipeline_tag: {pipeline}",
        "---",
        "",
        f"# {title}",
        "",
        *body,
        "## Use",
        "",
        "```python",
        *code,
        "```",
        "",
        elsewhere,
        "",
        "## Config",
        "",
        f"litebert {facts['litebert']}, torch {facts['torch']}, Python {facts['python']}.",
        "",
        "```yaml",
        write_yaml(config).rstrip(),
        "```",
        "",
    ]
    write_atomic(folder / "README.md", "\n".join(lines))
    return folder / "README.md"
