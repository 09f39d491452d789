"""Score one part: rows in, the bytes of a Parquet file out, as a pure function.

Passes are planned within a part, so its numbers do not depend on other parts or on timing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from litebert.bulk.columns import ERROR, arguments_of, find_columns, place_columns, result_columns
from litebert.bulk.reading import Part, missing_column
from litebert.errors import DataError, LitebertError
from litebert.predict.abilities import ABILITIES
from litebert.predict.ability import Result
from litebert.text.sources import Source

if TYPE_CHECKING:
    from litebert.predict.job import Job
    from litebert.predict.predictor import Predictor

# Rows whose passes are planned together: enough to fill passes, few enough for their outputs to fit into memory.
GROUP_ROWS = 4096
GROUP_CHARACTERS = 1 << 21
NOTE = b"litebert"  # the key of what a part says about itself


@dataclass(frozen=True)
class Work:
    """Everything that determines the results of a part."""

    model: str
    ability: str
    columns: Mapping[str, tuple[str, ...]]  # input -> columns, as named
    options: Mapping[str, Any]  # of the ability
    keep: tuple[str, ...] | None  # the columns to write beside the results; None: all
    dedupe: bool
    max_chars: int
    runtime: str
    device: str
    threads: int
    max_tokens: int
    schema: pa.Schema | None = None  # the columns of an input without rows and header

    def open_model(self) -> Predictor:
        """The model, in this process."""
        from litebert.predict.predictor import Predictor

        return Predictor(
            self.model, runtime=self.runtime, device=self.device, threads=self.threads, max_tokens=self.max_tokens
        )


@dataclass(frozen=True)
class Scored:
    """A finished part."""

    rows: int
    errors: int
    tokens: int
    examples: tuple[str, ...] = field(default=())  # of errors


def score_part(work: Work, predictor: Predictor, source: Source, part: Part) -> tuple[bytes, Scored]:
    """The results of a part as a Parquet file."""
    ability = ABILITIES[work.ability]
    inputs = part.table
    if not inputs.column_names and work.schema is not None:
        inputs = work.schema.empty_table()
    found = find_columns(ability, work.columns, inputs.schema, source)
    rows = arguments_of(ability, found, inputs)
    errors: list[str | None] = [part.problems.get(number) for number in range(len(rows))]
    results: list[Result | None] = [None] * len(rows)
    same = _first_of_equals(rows) if work.dedupe else list(range(len(rows)))
    tokens = 0
    for group in _groups(rows, [number for number, first in enumerate(same) if number == first]):
        answers, cost = _ask(work, predictor, {number: rows[number] for number in group})
        tokens += cost
        for number, result in answers.items():
            if isinstance(result, LitebertError):
                errors[number] = errors[number] or str(result)
            elif isinstance(result, Exception):
                raise result  # no row's fault
            else:
                results[number] = result
    for number, first in enumerate(same):
        if first != number:
            results[number] = results[first]
            errors[number] = errors[number] or (errors[first] if results[first] is None else None)
    columns = result_columns(ability, results, predictor.runtime.config.hidden_size)
    kept = inputs if work.keep is None else select_columns(inputs, work.keep, source)
    table = place_columns(kept, {**columns, ERROR: pa.array(errors, pa.string())})
    wrong = [number for number, error in enumerate(errors) if error is not None]
    examples = tuple(f"{source.path}, row {part.begin + number + 1:,}: {errors[number]}" for number in wrong[:3])
    scored = Scored(len(rows), len(wrong), tokens, examples)
    note = {"source": source.path, "part": part.number, "last": part.last, "errors": len(wrong), "tokens": tokens}
    return _parquet_bytes(table, note), scored


def _ask(work: Work, predictor: Predictor, rows: Mapping[int, Mapping[str, Any]]) -> tuple[dict[int, Any], int]:
    """The result or the error of each row of a group, and how many tokens they took."""
    found: dict[int, Any] = {}
    for number, row in rows.items():
        try:
            _check_values(row, work.max_chars)
        except LitebertError as error:
            found[number] = error
    rows = {number: row for number, row in rows.items() if number not in found}
    ability = ABILITIES[work.ability]
    if ability.many is not None and all(len(row) == 1 for row in rows.values()):
        name = ability.inputs[0].name
        tokens = _ask_together(work, predictor, {number: row[name] for number, row in rows.items()}, found)
        return found, tokens
    jobs: dict[int, Job] = {}
    for number, row in rows.items():
        try:
            jobs[number] = predictor.job(work.ability, **row, **work.options)
        except LitebertError as error:
            found[number] = error
    found.update(zip(jobs, predictor.run(list(jobs.values())), strict=True))
    return found, sum(job.tokens for job in jobs.values())


def _ask_together(work: Work, predictor: Predictor, texts: Mapping[int, Any], found: dict[int, Any]) -> int:
    """As `_ask`, for single texts: one job for all of them, as each would take longer than tokenising its text."""
    encoded = dict(zip(texts, predictor.encode_texts(work.ability, list(texts.values())), strict=True))
    found.update((number, ids) for number, ids in encoded.items() if isinstance(ids, LitebertError))
    good = {number: ids for number, ids in encoded.items() if not isinstance(ids, LitebertError)}
    if not good:
        return 0
    try:
        job = predictor.many_job(work.ability, list(good.values()), **work.options)
    except LitebertError as error:  # what one text would be refused for, all are
        found.update(dict.fromkeys(good, error))
        return 0
    predictor.run([job])
    failed = isinstance(job.result, Exception)
    found.update(dict.fromkeys(good, job.result) if failed else dict(zip(good, job.result, strict=True)))
    return job.tokens


def read_note(metadata: pq.FileMetaData, where: str) -> dict[str, Any]:
    """What a part says about itself."""
    try:
        note: dict[str, Any] = json.loads((metadata.metadata or {})[NOTE])
    except (KeyError, ValueError):
        raise DataError(f"{where}: not a part of a scoring run") from None
    return note


def _first_of_equals(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """For each row the first one with the same arguments: [a, b, a] -> [0, 1, 0]."""
    first: dict[str, int] = {}
    return [first.setdefault(json.dumps(row), number) for number, row in enumerate(rows)]


def _check_values(row: Mapping[str, Any], max_chars: int) -> None:
    for name, value in row.items():
        if value is None or (isinstance(value, list) and None in value):
            raise DataError(f"{name}: no value" if value is None else f"{name}: no value in one of {len(value)}")
        size = len(value) if isinstance(value, str) else sum(map(len, value))
        if size > max_chars:
            raise DataError(f"{name}: {size:,} characters, more than max_chars ({max_chars:,})")


def _groups(rows: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> Iterator[list[int]]:
    group: list[int] = []
    characters = 0
    for number in numbers:
        size = sum(len(value) for value in rows[number].values() if isinstance(value, str))
        if group and (len(group) == GROUP_ROWS or characters + size > GROUP_CHARACTERS):
            yield group
            group, characters = [], 0
        group.append(number)
        characters += size
    if group:
        yield group


def select_columns(table: pa.Table, keep: Sequence[str], source: Source) -> pa.Table:
    """The input columns to write next to the results."""
    for name in keep:
        if name not in table.column_names:
            raise missing_column(source, name, table.column_names)
    return table.select(list(keep))


def _parquet_bytes(table: pa.Table, note: Mapping[str, Any]) -> bytes:
    """A Parquet file; the same rows give the same bytes. Vectors are not compressed: nothing would be gained."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), NOTE: json.dumps(note).encode()})
    vectors = tuple(f"{entry.name}." for entry in table.schema if pa.types.is_fixed_size_list(entry.type))
    empty = io.BytesIO()
    pq.write_table(table.slice(0, 0), empty)
    schema = pq.ParquetFile(empty).schema
    paths = [schema.column(number).path for number in range(len(schema))]
    others = [path for path in paths if not path.startswith(vectors)] if vectors else paths
    compression = {path: "zstd" if path in others else "none" for path in paths}
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=compression, use_dictionary=others)
    return buffer.getvalue()
