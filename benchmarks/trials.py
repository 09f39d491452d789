"""Many cases tried one after the other, with failures printed: shared by hostile_files.py and damaged_files.py."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import torch


class Named(Protocol):
    """Something to try, known by its name."""

    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)


def read_options(description: str | None, **numbers: int) -> argparse.Namespace:
    """The command line: --only NAME, and an option for each of the numbers with its default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def try_all(
    make: Callable[[Path], Sequence[Item]], attempt: Callable[[Item], tuple[int, list[str]]], only: str
) -> None:
    """Try everything whose name contains `only` in a temporary folder and print failures; exit code 1 if any."""
    torch.set_num_threads(1)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="trials-", ignore_cleanup_errors=True) as folder:
        for item in make(Path(folder)):
            if only in item.name:
                count, wrong = attempt(item)
                bad += len(wrong)
                print("\n  ".join([f"{item.name}: {count:,} cases, {len(wrong)} wrong", *wrong]), flush=True)
    sys.exit(1 if bad else 0)


def describe_error(error: Exception) -> str:
    """What escaped, and the last line of litebert that it passed: "KeyError: 'a' (config.py:12)"."""
    frames = traceback.extract_tb(error.__traceback__)
    where = next((frame for frame in reversed(frames) if "/litebert/" in frame.filename), frames[-1])
    return f"{type(error).__name__}: {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"
