"""The errors a user can cause, one type per kind of mistake.

Every message says what is wrong, where (file, line, key, argument) and what to do about it. The command
line prints the message and exits with code 2; a traceback means a bug in litebert.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LitebertError(Exception):
    """Base class of every error a user can cause; catch this to catch them all."""


class ConfigError(LitebertError, ValueError):
    """An invalid config value, key or preset."""


class InputError(LitebertError, ValueError):
    """An invalid argument of a Python call: ids out of range, a sequence too long."""


class CheckpointError(LitebertError, ValueError):
    """A model or checkpoint file that is missing, damaged or incompatible."""


class DataError(LitebertError, ValueError):
    """A text, corpus or data file that is missing, damaged or incompatible."""


class MissingExtraError(LitebertError, ImportError):
    """A command needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str):
        super().__init__(f'{what} needs an optional dependency: pip install "litebert[{extra}]"')


def check_choice(name: str, value: object, known: Iterable[object], kind: type[LitebertError] = ConfigError) -> None:
    """Reject an unknown value: "to: 'onix' is not one of: onnx, torch-export; did you mean 'onnx'?"."""
    known = list(known)
    if value not in known:
        names = [str(choice) for choice in known]
        hint = did_you_mean(value, names) if isinstance(value, str) else ""
        raise kind(f"{name}: {quote_value(value)} is not one of: {', '.join(names)}{hint}")


def quote_value(value: object) -> str:
    """A value for a message, truncated; never fails and never floods the screen."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with too many digits to print
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """A hint for a mistyped name: 'albert-bse' -> "; did you mean 'albert-base'?" ('' if nothing is close).

    `before` is what each suggestion begins with, such as the folder of a file.
    """
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    if not near:
        return ""
    return "; did you mean " + " or ".join(repr(before + candidate) for candidate in near) + "?"
