"""What every model card ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litebert.config import write_yaml


def config_section(config: Any, facts: Mapping[str, Any]) -> list[str]:
    """Versions and the complete config of a run, as lines of Markdown."""
    return [
        "## Config",
        "",
        f"litebert {facts['litebert']}, torch {facts['torch']}, Python {facts['python']}.",
        "",
        "```yaml",
        write_yaml(config).rstrip(),
        "```",
        "",
    ]
