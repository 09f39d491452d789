"""What a table can show and a claim can speak of. Accuracies and scores are in percent, as the paper prints them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal["count", "model", "speed", "task"]


@dataclass(frozen=True)
class Metric:
    """One number per run: where it comes from, and how it is shown."""

    name: str
    title: str
    #: `count` needs no run, `speed` a timing, `model` a pretrained model, `task` fine-tuning on a data set.
    source: Source
    #: What a difference is counted in.
    unit: str = "points"
    digits: int = 1
    #: `task`: the data set.
    task: str = ""


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("params", "params", "count", unit="M"),
        Metric("mlm", "MLM", "model"),
        Metric("sop", "SOP", "model"),
        Metric("nsp", "NSP", "model"),
        Metric("sop_probe", "SOP probe", "model"),
        Metric("nsp_probe", "NSP probe", "model"),
        Metric("l2_roughness", "L2 roughness", "model", unit="", digits=3),
        Metric("angle_roughness", "angle roughness", "model", unit="", digits=3),
        Metric("last_l2", "last L2 / largest", "model", unit="", digits=2),
        Metric("speed", "tokens/s", "speed", unit="tokens/s", digits=0),
        Metric("speed_up", "speed-up", "speed", unit="x", digits=2),
        Metric("squad1_f1", "SQuAD1.1 F1", "task", task="SQuAD 1.1"),
        Metric("squad1_em", "EM", "task", task="SQuAD 1.1"),
        Metric("squad2_f1", "SQuAD2.0 F1", "task", task="SQuAD 2.0"),
        Metric("squad2_em", "EM", "task", task="SQuAD 2.0"),
        Metric("mnli", "MNLI", "task", task="MNLI"),
        Metric("qnli", "QNLI", "task", task="QNLI"),
        Metric("qqp", "QQP", "task", task="QQP"),
        Metric("rte", "RTE", "task", task="RTE"),
        Metric("sst2", "SST-2", "task", task="SST-2"),
        Metric("mrpc", "MRPC", "task", task="MRPC"),
        Metric("cola", "CoLA", "task", task="CoLA"),
        Metric("stsb", "STS-B", "task", task="STS-B"),
        Metric("wnli", "WNLI", "task", task="WNLI"),
        Metric("race", "RACE", "task", task="RACE"),
        Metric("average", "Avg", "task", task="the tasks at hand"),
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
    """The mean over the tasks among `wanted` that were scored: {"sst2": 90, "squad1_f1": 89, "squad1_em": 83} -> 88."""
    parts = _parts(scores, wanted)
    return sum(parts) / len(parts) if parts else None


def average_error(errors: Mapping[str, float], wanted: tuple[str, ...]) -> float | None:
    """The standard error of average_of: tasks are independent, the two numbers of a SQuAD go together."""
    parts = _parts(errors, wanted)
    return math.hypot(*parts) / len(parts) if parts else None


def _parts(values: Mapping[str, float], wanted: tuple[str, ...]) -> list[float]:
    known = [names for names in AVERAGED if set(names) <= set(wanted) and set(names) <= set(values)]
    return [sum(values[name] for name in names) / len(names) for names in known]
