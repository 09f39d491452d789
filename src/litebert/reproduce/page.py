"""A reproduction as one HTML page."""
from __future__ import annotations
from pathlib import Path
def write_outcomes(out: Path) -> Path:
    return out
