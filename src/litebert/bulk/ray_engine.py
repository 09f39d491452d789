"""Score parts on a Ray cluster, through Ray Data: stretches of parts go to actors that hold the model.

An actor reads its stretch, scores it and writes the parts. If it dies, Ray starts another one, which computes only the
missing parts.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from litebert.bulk.folder import Folder, part_name
from litebert.bulk.local import Done
from litebert.bulk.part import Work, score_part
from litebert.bulk.reading import Part, num_parts, read_parts
from litebert.errors import LitebertError
from litebert.text.sources import Source
from litebert.text.workers import open_ray

SPAN = 16  # parts of a Parquet file that go to an actor together
SHARE = 4  # actors on one GPU: while one tokenises or writes, others keep it busy


@dataclass(frozen=True)
class Span:
    """A stretch of parts of one file; a file of lines is one stretch, since only reading tells where its rows are."""

    index: int
    source: Source
    first: int
    stop: int | None
    part_rows: int
    encoding: str


def cut_spans(
    sources: Sequence[tuple[int, Source]], part_rows: int, encoding: str, done: Mapping[int, set[int]]
) -> list[Span]:
    """The stretches of files in which something is still to do."""
    spans = []
    for index, source in sources:
        count = num_parts(source, part_rows)
        if count is None:
            spans.append(Span(index, source, 0, None, part_rows, encoding))
            continue
        for first in range(0, count, SPAN):
            stop = min(first + SPAN, count)
            if not set(range(first, stop)) <= done.get(index, set()):
                spans.append(Span(index, source, first, stop, part_rows, encoding))
    return spans


def run_ray(work: Work, out: str, spans: Sequence[Span], workers: int, done: Done) -> None:
    """Score all stretches; Ray runs `workers` actors (0: four for each GPU, or without GPUs one for each core)."""
    if not spans:
        return
    with open_ray(workers) as (ray, data):
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if work.device != "cpu" else 0
        count = min(len(spans), workers or SHARE * gpus or max(1, int(resources.get("CPU", 1))))
        needs = {"num_gpus": min(1.0, gpus / count)} if gpus else {}
        rows = [{"span": pickle.dumps(span)} for span in spans]
        scored = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            SpanScorer,
            fn_constructor_kwargs={"work": work, "out": out, "place": os.getcwd()},
            batch_size=1,
            compute=data.ActorPoolStrategy(size=count),
            num_cpus=1,
            **needs,
        )
        for row in scored.iter_rows():
            for source, part, result in pickle.loads(row["scored"]):
                if isinstance(result, Exception):
                    raise result
                done(source, part, result)


class SpanScorer:
    """An actor: a model, and stretches one after another."""

    def __init__(self, work: Work, out: str, place: str):
        with contextlib.suppress(OSError):  # where paths that are not absolute begin, if this machine has it
            os.chdir(place)
        self.work, self.folder = work, Folder(out)
        self.predictor = work.open_model()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[bytes]]:
        """Score the missing parts of each stretch."""
        return {"scored": [pickle.dumps(self._score(pickle.loads(span))) for span in batch["span"]]}

    def _score(self, span: Span) -> list[tuple[Source, Part, Any]]:
        there = self.folder.parts().get(span.index, set())
        results: list[tuple[Source, Part, Any]] = []
        empty = Part(span.index, 0, 0, pa.table({}))
        try:
            for part in read_parts(
                span.source,
                span.part_rows,
                index=span.index,
                encoding=span.encoding,
                done=there,
                first=span.first,
                stop=span.stop,
            ):
                data, scored = score_part(self.work, self.predictor, span.source, part)
                self.folder.write(part_name(part.source, part.number), data)
                results.append((span.source, part.without_rows(), scored))
        except (LitebertError, OSError) as error:  # of Ray itself, a traceback would come of it
            results.append((span.source, empty, error))
        return results
