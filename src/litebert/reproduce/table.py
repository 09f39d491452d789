"""A table of the paper as data: its rows, what to measure, what the paper prints, and the claims that follow from it.

load_table("table5").rows["sop"].paper["nsp"]     -> 78.9

The files are `tables/*.yaml`. In a file, `row:` holds what all rows have in common, `paper_columns:` names the numbers
in every row's `paper:` list, and a row names only what is different about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

import yaml

from litebert.config import build, merge
from litebert.errors import ConfigError, did_you_mean
from litebert.model.config import Sharing
from litebert.pretraining.recipes import Objective
from litebert.reproduce.metrics import METRICS

#: `tokens`: every row sees as many tokens; `time`: every row gets as many minutes (Table 6 is about that).
Budget = Literal["tokens", "time"]


@dataclass(frozen=True)
class Row:
    """One model of a table, in the paper's own sizes; a scale turns them into smaller ones."""

    #: A preset of litebert.model.config; empty where the row is only quoted from the paper.
    model: str = ""
    embedding: int | None = None
    sharing: Sharing | None = None
    layers: int | None = None
    hidden: int | None = None
    objective: Objective = "sop"
    #: None: as the scale says.
    dropout: float | None = None
    #: `more`: also on the additional data.
    data: Literal["base", "more"] = "base"
    #: Begin with the model of this row, which is shallower (Table 11).
    after: str | None = None
    #: At the scale `paper`; the others share one budget.
    steps: int = 125_000
    #: This row is the mean of the predictions of that row's models, one per seed.
    ensemble_of: str | None = None
    #: What the paper prints, by metric.
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_run(self) -> bool:
        """Whether there is something to train: not so for ensembles and rows quoted from the paper."""
        return bool(self.model) and self.ensemble_of is None


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as a comparison: sum of weight x row, `above`, `not_above` or `near` a reference."""

    text: str
    #: The claim is tested on each of these that was measured.
    metrics: tuple[str, ...]
    of: Mapping[str, float]
    above: float | None = None
    not_above: float | None = None
    near: float | None = None
    #: The least difference that would matter: what separates "no difference" from "cannot be told".
    margin: float = 0.5

    @property
    def reference(self) -> float:
        """What the comparison is held against."""
        given = [value for value in (self.above, self.not_above, self.near) if value is not None]
        (reference,) = given
        return reference


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper."""

    name: str
    title: str
    #: The one thing in which the rows differ.
    varies: str
    rows: Mapping[str, Row]
    measure: tuple[str, ...]
    claims: tuple[Claim, ...] = ()
    paper_columns: tuple[str, ...] = ()
    budget: Budget = "tokens"
    seeds: int = 1
    #: The row that `speed_up` refers to.
    speed_reference: str = ""
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Metrics to show: the paper's, then ours that the paper lacks."""
        return tuple(dict.fromkeys((*self.paper_columns, *self.measure)))

    @property
    def label(self) -> str:
        """ "table5" -> "Table 5"."""
        kind = self.name.rstrip("0123456789")
        return f"{kind.capitalize()} {self.name[len(kind) :]}"


NAMES = (*(f"table{number}" for number in range(1, 14)), "figure1", "figure2")


def load_table(name: str) -> Table:
    """The table of that name, checked."""
    if name not in NAMES:
        hint = did_you_mean(name, NAMES) or "."
        raise ConfigError(f"no table {name!r}{hint} litebert reproduce --list shows all")
    text = resources.files("litebert.reproduce").joinpath("tables", f"{name}.yaml").read_text(encoding="utf-8")
    return make_table(name, yaml.safe_load(text))


def make_table(name: str, data: Mapping[str, Any]) -> Table:
    """A table from the plain data of its file."""
    data = dict(data)
    common, columns = data.pop("row", {}), tuple(data.get("paper_columns", ()))
    rows = {}
    for key, row in data.pop("rows").items():
        row = merge(common, row or {})
        printed = row.get("paper") or [None] * len(columns)
        if len(printed) != len(columns):
            raise ConfigError(f"{name}: rows.{key}.paper: {len(printed)} numbers for {len(columns)} paper_columns")
        row["paper"] = {column: value for column, value in zip(columns, printed, strict=True) if value is not None}
        rows[str(key)] = row
    table = build(Table, {**data, "name": name, "rows": rows}, f"{name}: ")
    _check(table)
    return table


def _check(table: Table) -> None:
    """Every name in a table must mean something."""
    for metric in (*table.columns, *(name for claim in table.claims for name in claim.metrics)):
        if metric not in METRICS:
            raise ConfigError(f"{table.name}: no metric {metric!r}{did_you_mean(metric, METRICS)}")
    above: list[str] = []
    for name, row in table.rows.items():
        for other in (row.after, row.ensemble_of):
            if other is not None and other not in above:
                hint = did_you_mean(other, table.rows)
                raise ConfigError(f"{table.name}: rows.{name}: no row {other!r} above it{hint}")
        above.append(name)
    for claim in table.claims:
        if sum(value is not None for value in (claim.above, claim.not_above, claim.near)) != 1:
            raise ConfigError(f"{table.name}: claim {claim.text!r}: give one of above, not_above and near")
        for row_name in claim.of:
            if row_name not in table.rows:
                hint = did_you_mean(row_name, table.rows)
                raise ConfigError(f"{table.name}: claim {claim.text!r}: no row {row_name!r}{hint}")
