"""The paper's tables as data: rows, metrics, the numbers that the paper prints, and the claims that follow from them.

load_table("table5").rows["sop"].paper["nsp"]     -> 78.9

The files are `tables/*.yaml`. In a file, `row:` holds what all rows share, `paper_columns:` names the numbers in each
row's `paper:` list, and a row states only what sets it apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

import yaml

from litebert.config import build, merge
from litebert.errors import ConfigError, did_you_mean
from litebert.model.config import Sharing
from litebert.pretraining.recipes import Objective

Source = Literal["count", "model", "speed", "task"]


@dataclass(frozen=True)
class TableMetric:
    """One number per run: its source and how to show it."""

    name: str
    title: str
    #: `count` needs no run, `speed` a timing, `model` a pretrained model, `task` fine-tuning on a data set.
    source: Source
    #: The unit of a difference.
    unit: str = "points"
    digits: int = 1
    #: `task`: the data set.
    task: str = ""


METRICS: dict[str, TableMetric] = {
    metric.name: metric
    for metric in (
        TableMetric("params", "params", "count", unit="M"),
        TableMetric("mlm", "MLM", "model"),
        TableMetric("sop", "SOP", "model"),
        TableMetric("nsp", "NSP", "model"),
        TableMetric("sop_probe", "SOP probe", "model"),
        TableMetric("nsp_probe", "NSP probe", "model"),
        TableMetric("l2_roughness", "L2 roughness", "model", unit="", digits=3),
        TableMetric("angle_roughness", "angle roughness", "model", unit="", digits=3),
        TableMetric("last_l2", "last L2 / largest", "model", unit="", digits=2),
        TableMetric("speed", "tokens/s", "speed", unit="tokens/s", digits=0),
        TableMetric("speed_up", "speed-up", "speed", unit="x", digits=2),
        TableMetric("squad1_f1", "SQuAD1.1 F1", "task", task="SQuAD 1.1"),
        TableMetric("squad1_em", "EM", "task", task="SQuAD 1.1"),
        TableMetric("squad2_f1", "SQuAD2.0 F1", "task", task="SQuAD 2.0"),
        TableMetric("squad2_em", "EM", "task", task="SQuAD 2.0"),
        TableMetric("mnli", "MNLI", "task", task="MNLI"),
        TableMetric("qnli", "QNLI", "task", task="QNLI"),
        TableMetric("qqp", "QQP", "task", task="QQP"),
        TableMetric("rte", "RTE", "task", task="RTE"),
        TableMetric("sst2", "SST-2", "task", task="SST-2"),
        TableMetric("mrpc", "MRPC", "task", task="MRPC"),
        TableMetric("cola", "CoLA", "task", task="CoLA"),
        TableMetric("stsb", "STS-B", "task", task="STS-B"),
        TableMetric("wnli", "WNLI", "task", task="WNLI"),
        TableMetric("race", "RACE", "task", task="RACE"),
        TableMetric("average", "Avg", "task", task="the available tasks"),
    )
}

#: Shown as one column, F1 / EM.
PAIRS = {"squad1_f1": "squad1_em", "squad2_f1": "squad2_em"}

#: The parts of `average`; the two numbers of a SQuAD count as one (the paper's Avg).
AVERAGED = (
    ("squad1_f1", "squad1_em"),
    ("squad2_f1", "squad2_em"),
    *((name,) for name in ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb", "wnli", "race")),
)


def average_of(scores: Mapping[str, float], wanted: tuple[str, ...]) -> float | None:
    """The mean over the scored tasks among `wanted`: {"sst2": 90, "squad1_f1": 89, "squad1_em": 83} -> 88."""
    parts = _parts(scores, wanted)
    return sum(parts) / len(parts) if parts else None


def average_error(errors: Mapping[str, float], wanted: tuple[str, ...]) -> float | None:
    """The standard error of average_of: tasks are independent, but the two numbers of a SQuAD are not."""
    parts = _parts(errors, wanted)
    return math.hypot(*parts) / len(parts) if parts else None


def _parts(values: Mapping[str, float], wanted: tuple[str, ...]) -> list[float]:
    known = [names for names in AVERAGED if set(names) <= set(wanted) and set(names) <= set(values)]
    return [sum(values[name] for name in names) / len(names) for names in known]


# -- tables ------------------------------------------------------------------------------------------------------------

#: `tokens`: every row sees equally many tokens; `time`: every row gets equally many minutes (Table 6).
Budget = Literal["tokens", "time"]


@dataclass(frozen=True)
class PaperRow:
    """One model of a table in the paper's sizes; a scale makes them smaller."""

    #: A preset of litebert.model.config; empty if the row is only quoted from the paper.
    model: str = ""
    embedding: int | None = None
    sharing: Sharing | None = None
    layers: int | None = None
    hidden: int | None = None
    objective: Objective = "sop"
    #: None: the scale's value.
    dropout: float | None = None
    #: `more`: also on the additional data.
    data: Literal["base", "more"] = "base"
    #: Start from the model of this row, which is shallower (Table 11).
    after: str | None = None
    #: At the scale `paper`; at the others all rows share one budget.
    steps: int = 125_000
    #: This row averages the predictions of that row's models, one per seed.
    ensemble_of: str | None = None
    #: What the paper prints, by metric.
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_run(self) -> bool:
        """Whether there is something to train: false for ensembles and rows quoted from the paper."""
        return bool(self.model) and self.ensemble_of is None


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as a comparison: sum of weight x row, `above`, `not_above` or `near` a reference."""

    text: str
    #: The claim is tested on those that were measured.
    metrics: tuple[str, ...]
    of: Mapping[str, float]
    above: float | None = None
    not_above: float | None = None
    near: float | None = None
    #: The smallest difference that matters: it separates "no difference" from "inconclusive".
    margin: float = 0.5

    @property
    def reference(self) -> float:
        """The value to compare with."""
        given = [value for value in (self.above, self.not_above, self.near) if value is not None]
        (reference,) = given
        return reference


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper."""

    name: str
    title: str
    #: What differs between the rows.
    varies: str
    rows: Mapping[str, PaperRow]
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
        """Metrics to show: the paper's, then ours that the paper does not have."""
        return tuple(dict.fromkeys((*self.paper_columns, *self.measure)))

    @property
    def label(self) -> str:
        """ "table5" -> "Table 5"."""
        kind = self.name.rstrip("0123456789")
        return f"{kind.capitalize()} {self.name[len(kind) :]}"


NAMES = (*(f"table{number}" for number in range(1, 14)), "figure1", "figure2")


def load_table(name: str) -> PaperTable:
    """The table of that name, checked."""
    if name not in NAMES:
        hint = did_you_mean(name, NAMES) or "."
        raise ConfigError(f"no table {name!r}{hint} litebert reproduce --list shows all of them")
    text = resources.files("litebert.reproduce").joinpath("tables", f"{name}.yaml").read_text(encoding="utf-8")
    return make_table(name, yaml.safe_load(text))


def make_table(name: str, data: Mapping[str, Any]) -> PaperTable:
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
    table = build(PaperTable, {**data, "name": name, "rows": rows}, f"{name}: ")
    _check(table)
    return table


def _check(table: PaperTable) -> None:
    """Check that every name in a table is known."""
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
