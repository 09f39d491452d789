"""Runs that learned nothing: they fill masks hardly better than one who always answers the commonest token.

Deep and wide models may stay there for many steps. Such a run shows that its recipe did not work at this scale; about
what the paper compares it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from litebert.pretraining.plateau import LEAST_LEARNED
from litebert.reproduce.results import Place, Results


class Unlearned(NamedTuple):
    """MLM accuracy of a run, and that of the commonest token alone, in percent."""

    mlm: float
    floor: float


def find_unlearned(results: Results) -> dict[Place, Unlearned]:
    """The runs of a table that learned nothing; one whose floor is not known is taken for a model like any other."""
    found = {}
    for place, facts in results.facts.items():
        mlm, floor = results.of(place.row, "mlm").get(place.seed), facts.get("mlm_floor")
        if mlm is not None and floor is not None and mlm - floor < 100 * LEAST_LEARNED:
            found[place] = Unlearned(mlm, floor)
    return found


def describe_unlearned(unlearned: Mapping[Place, Unlearned]) -> str:
    """Which rows, seeds and numbers: "wide (seeds 0, 2) learned no more than token frequencies: MLM 5.3, where ..."."""
    rows: dict[str, list[int]] = {}
    for row, seed in unlearned:
        rows.setdefault(row, []).append(seed)
    names = [
        f"{row} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))})"
        for row, seeds in rows.items()
    ]
    mlm, floor = (_range(values) for values in zip(*unlearned.values(), strict=True))
    return (
        f"{', '.join(names)} learned no more than token frequencies: "
        f"MLM {mlm}, where the commonest token alone gives {floor}"
    )


def _range(values: Sequence[float]) -> str:
    """(5.32, 5.28) -> "5.3", (5.32, 5.41) -> "5.3 to 5.4"."""
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(values), max(values))))
