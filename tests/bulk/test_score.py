"""`litebert score`: any ability over any file, in parts that a kill at any moment leaves whole."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zstandard
from small_runs import TASKS, TEXTS, embed, parts, read, texts, write

import litebert
from litebert.bulk import score as score_module
from litebert.bulk.folder import PLAN, SUMMARY
from litebert.bulk.part import GROUP_ROWS
from litebert.bulk.score import score
from litebert.errors import ConfigError, DataError, InputError, LitebertError
from litebert.predict.predictor import Predictor


def test_vectors_are_the_predictors(model, tmp_path):
    source = write(tmp_path / "a.parquet", texts(25))
    summary = embed(model, source, tmp_path / "out")
    assert (summary.rows, summary.errors, summary.parts, summary.inputs, summary.scored_rows) == (25, 0, 3, 1, 25)
    table = read(tmp_path / "out")
    assert table.column_names == ["id", "body", "vector", "pooling", "tokens", "windows", "depth", "error"]
    assert table["id"].to_pylist() == list(range(25))
    vectors = np.stack(table["vector"].to_numpy())
    expected = Predictor(model("pretraining"), device="cpu", threads=1).embed(texts(25))
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 24)
    # What other programs see: the whole folder is one data set.
    assert ds.dataset(tmp_path / "out", format="parquet").count_rows() == 25
    assert json.loads((tmp_path / "out" / SUMMARY).read_text())["rows"] == 25


def test_the_built_in_model_answers_as_elsewhere(tmp_path):
    """By its adapter: also where the workers' model is in another process."""
    source = write(tmp_path / "a.parquet", texts(3))
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        score("default", source, out, ability="embed", columns={"text": "body"}, workers=workers, device="cpu")
        vectors = np.stack(read(out)["vector"].to_numpy())
        np.testing.assert_allclose(vectors, Predictor(device="cpu").embed(texts(3)), atol=1e-5)
    score("default", source, tmp_path / "labels", ability="classify", columns={"text": "body"}, workers=1, device="cpu")
    assert set(read(tmp_path / "labels")["label"].to_pylist()) <= {"negative", "positive"}


FILES = {
    "a.csv": lambda rows: "id,body\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(rows)),
    "b.tsv": lambda rows: "id\tbody\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(rows)),
    "c.jsonl": lambda rows: "".join(json.dumps({"id": str(i), "body": t}) + "\n" for i, t in enumerate(rows)),
    "d.txt": lambda rows: "".join(f"{t}\n" for t in rows),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("compress", [None, gzip.compress, zstandard.compress, bz2.compress])
def test_every_format_gives_the_same_rows(model, tmp_path, name, compress):
    data = FILES[name](texts(23)).encode()
    ending = {None: "", gzip.compress: ".gz", zstandard.compress: ".zst", bz2.compress: ".bz2"}[compress]
    path = tmp_path / f"{name}{ending}"
    path.write_bytes(compress(data) if compress else data)
    column = "text" if name == "d.txt" else "body"
    embed(model, path, tmp_path / "out", columns={"text": column})
    embed(model, write(tmp_path / "same.parquet", texts(23)), tmp_path / "same")
    found, same = read(tmp_path / "out"), read(tmp_path / "same")
    assert found[column].to_pylist() == texts(23)
    assert found["vector"].equals(same["vector"])
    if column == "body":
        assert found["id"].to_pylist() == [str(number) for number in range(23)]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be"])
def test_every_encoding_gives_the_same_rows(model, tmp_path, name, encoding):
    """Those with a byte-order mark without being told."""
    path, plain = tmp_path / name, tmp_path / "plain" / name
    plain.parent.mkdir()
    rows = [f"{text} 좋다😀" for text in texts(9)]
    path.write_bytes(FILES[name](rows).encode(encoding))
    plain.write_bytes(FILES[name](rows).encode())
    columns = {"text": "text" if name == "d.txt" else "body"}
    named = {"encoding": encoding} if encoding == "utf-16-be" else {}
    embed(model, path, tmp_path / "out", columns=columns, **named)
    embed(model, plain, tmp_path / "same", columns=columns)
    assert read(tmp_path / "out").equals(read(tmp_path / "same"))


CASES = {
    "classify": ("classification", {"text": TEXTS}),
    "tag": ("token-classification", {"text": TEXTS}),
    "answer": ("span", {"question": ["who?", "where?"], "context": TEXTS[:2]}),
    "choose": (
        "multiple-choice",
        {"passage": TEXTS[:2], "question": ["who?", ""], "options": [["in may", "in june"], ["rome", "oslo"]]},
    ),
    "fill_mask": ("pretraining", {"text": [f"{text} [MASK]" for text in TEXTS]}),
    "sentence_order": ("pretraining", {"a": TEXTS[:2], "b": TEXTS[2:]}),
    "coherence": ("pretraining", {"text": ["Anna lives in Oslo. Her brother lives in Rome. It was cold."] * 2}),
    "attention": ("pretraining", {"text": TEXTS[:2]}),
}


@pytest.mark.parametrize("ability", CASES)
def test_every_ability_writes_all_that_its_result_holds(model, tmp_path, ability):
    head, columns = CASES[ability]
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    asked = None if head in TASKS else ability  # a fine-tuned model is asked for what it learned
    summary = score(model(head), tmp_path / "in.parquet", tmp_path / "out", ability=asked, device="cpu", workers=1)
    assert summary.errors == 0
    rows = read(tmp_path / "out").to_pylist()
    predictor = Predictor(model(head), device="cpu", threads=1)
    arguments = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    results = predictor.run([predictor.job(ability, **each) for each in arguments])
    for row, result in zip(rows, results, strict=True):
        for name, value in result.as_dict().items():
            if name in columns and ability != "answer":
                continue  # what repeats an input
            found = row[name]
            if isinstance(value, dict):
                found = dict(found)
            assert _near(found, value), (name, found, value)


def _near(found, value) -> bool:
    if isinstance(value, float):
        return found == pytest.approx(value, abs=1e-5)
    if isinstance(value, dict):
        found = dict(found)
        return found.keys() == value.keys() and all(_near(found[key], item) for key, item in value.items())
    if isinstance(value, list):
        return len(found) == len(value) and all(map(_near, found, value))
    return found == value


def test_columns_of_options_and_pairs(model, tmp_path):
    """Choices in columns of their own, in one cell, and a name that the input has already."""
    (tmp_path / "in.csv").write_text("passage,question,a,b,c,index\nanna moved.,who?,anna,oslo,,7\n")
    settings = {"columns": {"options": ["a", "b", "c"]}, "device": "cpu", "workers": 1}
    score(model("multiple-choice"), tmp_path / "in.csv", tmp_path / "out", **settings)
    (row,) = read(tmp_path / "out").to_pylist()
    assert row["index"] == "7"
    assert row["predicted_index"] in (0, 1)
    assert len(row["probabilities"]) == 2
    (tmp_path / "cell.csv").write_text("passage,question,options\nanna moved.,who?,anna|oslo\n")
    score(model("multiple-choice"), tmp_path / "cell.csv", tmp_path / "cell", device="cpu", workers=1)
    assert read(tmp_path / "cell")["probabilities"].to_pylist() == [row["probabilities"]]


def test_bad_rows_have_an_error_and_the_others_a_result(model, tmp_path):
    lines = [b"anna lives in oslo.", b"", b"caf\xe9", b"   ", b"x" * 60, b"it was may."]
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines))
    summary = embed(model, tmp_path / "a.txt", tmp_path / "out", columns={}, max_chars=50, part_rows=4)
    table = read(tmp_path / "out")
    errors = table["error"].to_pylist()
    assert errors[0] is None
    assert errors[5] is None
    assert "empty" in errors[1]
    assert errors[2] == "not UTF-8: byte 3 (unexpected end of data)"
    assert "empty" in errors[3]
    assert errors[4] == "text: 60 characters, more than max_chars (50)"
    assert summary.errors == 4
    assert summary.examples[0] == f"{tmp_path / 'a.txt'}, row 2: {errors[1]}"
    # An undecodable byte is shown as a sign, and the rest of such a text is scored.
    assert [value is None for value in table["vector"].to_pylist()] == [False, True, False, True, True, False]


def test_bad_rows_of_tables(model, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,body\n1,anna\n2\n3,may,4\n4,caf\xe9\n5,oslo\n")
    embed(model, tmp_path / "a.csv", tmp_path / "csv")
    assert read(tmp_path / "csv")["error"].to_pylist() == [
        None,
        "1 fields, but the header has 2",
        "3 fields, but the header has 2",
        "not UTF-8",
        None,
    ]
    rows = ['{"id": 1, "body": "anna"}', "", '{"id": 2', '{"id": "x", "body": "may"}', "[]", '{"id": 3, "body": null}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    embed(model, tmp_path / "a.jsonl", tmp_path / "json")
    table = read(tmp_path / "json")
    errors = table["error"].to_pylist()
    assert errors[0] is None
    assert errors[1].startswith("line 3: not JSON")
    assert errors[3] == "line 5: not a JSON object"
    assert "body" in errors[4] or "text" in errors[4]
    assert len(errors) == 5


def test_json_columns_keep_their_types(model, tmp_path):
    rows = [{"body": "anna", "n": 1, "x": 0.5, "on": True, "tags": ["a"], "deep": {"k": 1}}, {"body": "may", "n": None}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    embed(model, tmp_path / "a.jsonl", tmp_path / "out")
    first, second = read(tmp_path / "out").select(["body", "n", "x", "on", "tags", "deep"]).to_pylist()
    assert first == {**rows[0], "deep": '{"k": 1}'}
    assert second == dict.fromkeys(first) | {"body": "may"}


def test_equal_rows_are_computed_once(model, tmp_path, monkeypatch):
    asked = []
    encode = Predictor.encode_texts
    monkeypatch.setattr(
        Predictor, "encode_texts", lambda self, ability, texts: asked.extend(texts) or encode(self, ability, texts)
    )
    source = write(tmp_path / "a.parquet", ["anna", "oslo", "anna", "", "anna", ""])
    summary = embed(model, source, tmp_path / "out", dedupe=True)
    assert asked == ["anna", "oslo", ""]
    vectors = read(tmp_path / "out")["vector"].to_pylist()
    assert vectors[0] == vectors[2] == vectors[4] != vectors[1]
    assert vectors[3] is vectors[5] is None
    assert summary.errors == 2


def test_a_part_does_not_depend_on_the_others(model, tmp_path):
    """Whatever is done before, a part has the same bytes: one that is deleted comes back as it was."""
    source = write(tmp_path / "a.parquet", texts(47))
    embed(model, source, tmp_path / "out")
    before = parts(tmp_path / "out")
    assert len(before) == 5
    for name in ("part-00000-000001.parquet", "part-00000-000003.parquet"):
        (tmp_path / "out" / name).unlink()
    again = embed(model, source, tmp_path / "out")
    assert (again.rows, again.scored_rows) == (47, 20)
    assert parts(tmp_path / "out") == before
    assert embed(model, source, tmp_path / "out", part_rows=0).scored_rows == 0  # by default as it was begun
    # What a killed process left of a part that it was writing is swept away.
    (tmp_path / "out" / ".part-00000-000009.parquet.abcd1234.tmp").write_bytes(b"half")
    embed(model, source, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".*.tmp"))


def test_processes_write_the_same_bytes(model, tmp_path):
    sources = [write(tmp_path / "a.parquet", texts(47)), write(tmp_path / "b.parquet", texts(5))]
    embed(model, sources, tmp_path / "one")
    summary = embed(model, sources, tmp_path / "two", workers=2)
    assert summary.rows == 52
    assert parts(tmp_path / "two") == parts(tmp_path / "one")


def test_a_shared_device_gives_the_same_bytes(model, tmp_path):
    """Workers that only prepare and finish, as beside a GPU: here the model of this process is on the CPU."""
    from dataclasses import replace

    from litebert.bulk import score as module
    from litebert.bulk.local import run_workers

    source = write(tmp_path / "a.parquet", [*texts(30), ""])
    embed(model, source, tmp_path / "one")

    def shared(work, predictor, run, workers):
        run_workers(replace(work, model="nowhere"), predictor, run.out, run.feed(), 2, run.done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_run_local", shared)
        summary = embed(model, source, tmp_path / "two")
    assert (summary.rows, summary.errors) == (31, 1)
    assert parts(tmp_path / "two") == parts(tmp_path / "one")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_progress_counts_rows_in_whatever_order_parts_come(model, tmp_path, ending):
    source = tmp_path / f"a.{ending}"
    rows = ["anna lives in oslo."] * 100
    if ending == "parquet":
        write(source, rows)
    else:
        source.write_text("body\n" + "".join(f"{row}\n" for row in rows))

    def shares(**more):
        seen = []
        embed(model, source, tmp_path / "out", progress=seen.append, **more)
        assert [each.rows for each in seen] == sorted(each.rows for each in seen)
        assert seen[-1].rows == 100
        return [each.share for each in seen], [each.seconds_left for each in seen]

    found, left = shares()
    assert found[-1] == 1
    assert left[-1] == 0
    if ending == "parquet":  # of a small file all bytes are read at once
        assert found == pytest.approx([0.1 * number for number in range(1, 11)], abs=0.01)
    for number in (0, 1, 5, 9):  # what an earlier run has done counts
        (tmp_path / "out" / f"part-00000-00000{number}.parquet").unlink()
    again, left = shares()
    assert again[-1] == pytest.approx(1, abs=0.01)
    if ending == "parquet":
        assert again == pytest.approx([0.7, 0.8, 0.9, 1.0], abs=0.01)
    for path in (tmp_path / "out").glob("part-*"):
        path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score_module._Run, "feed", lambda run, feed=score_module._Run.feed: iter([*feed(run)][::-1]))
        backwards, _ = shares()
    if ending == "parquet":
        assert backwards == pytest.approx([0.1 * number for number in range(1, 11)], abs=0.01)
    assert backwards[-1] == pytest.approx(1, abs=0.01)


def test_a_dead_worker_is_replaced(model, tmp_path, monkeypatch):
    """A worker that is killed at its first part, as for want of memory."""
    from litebert.bulk import local
    from litebert.bulk.local import Worker

    killed = []

    def start(begin, device):
        worker = Worker(begin)
        if not killed:
            killed.append(worker.pid)
            worker._process.kill()
        return worker

    monkeypatch.setattr(local, "_start", start)
    source = write(tmp_path / "a.parquet", texts(31))
    embed(model, source, tmp_path / "two", workers=2)
    assert killed
    embed(model, source, tmp_path / "one")
    assert parts(tmp_path / "two") == parts(tmp_path / "one")
    monkeypatch.setattr(local, "TRIES", 1)
    killed.clear()
    with pytest.raises(LitebertError, match=r"rows 1 to 10|rows 11 to 20.*died"):
        embed(model, source, tmp_path / "three", workers=2)


def test_addresses(model, tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("a", "b"):
        source = write(tmp_path / f"{name}.parquet", texts(12))
        memory.pipe_file(f"/in/{name}.parquet", source.read_bytes())
    memory.pipe_file("/in/c.csv.gz", gzip.compress(b"body\nanna\n"))
    summary = embed(model, "memory://in/*", "memory://out", keep=["body"])
    assert (summary.rows, summary.inputs, summary.parts) == (25, 3, 5)
    with memory.open("/out/part-00001-000001.parquet") as file:
        assert pq.read_table(file)["body"].to_pylist() == texts(12)[10:]
    assert embed(model, "memory://in/*", "memory://out", keep=["body"]).scored_rows == 0
    with pytest.raises(DataError, match=r"nothing\.parquet: no such file"):
        embed(model, "memory://in/nothing.parquet", tmp_path / "out")
    with pytest.raises(DataError, match="no-such-store"):
        embed(model, "no-such-store://x", tmp_path / "out")


def test_another_command_is_refused(model, tmp_path):
    source, other = write(tmp_path / "a.parquet", texts(12)), write(tmp_path / "b.parquet", texts(3))
    out = tmp_path / "out"
    embed(model, source, out)
    before = parts(out)
    changes = {
        "part_rows": (dict(part_rows=5), "results with part_rows 10, not 5"),
        "options": (dict(options={"pooling": "cls"}), 'options {}, not {"pooling": "cls"}'),
        "dedupe": (dict(dedupe=True), "dedupe false, not true"),
        "columns": (dict(keep=["id"]), 'keep null, not ["id"]'),
    }
    for change, message in changes.values():
        with pytest.raises(DataError) as error:
            embed(model, source, out, **change)
        assert message in str(error.value)
        assert "use another folder" in str(error.value)
    with pytest.raises(DataError, match=r"the inputs have changed \(with .*b.parquet\)"):
        embed(model, [source, other], out)
    with pytest.raises(DataError, match="holds another model's results"):
        score(model("classification"), source, out, ability="embed", columns={"text": "body"}, part_rows=10, workers=1)
    write(source, texts(13))
    with pytest.raises(DataError, match=r"a\.parquet has changed .*; delete its parts \(part-00000-\*"):
        embed(model, source, out)
    assert parts(out) == before
    for part in out.glob("part-00000-*.parquet"):
        part.unlink()
    assert embed(model, source, out).scored_rows == 13


def test_an_input_that_was_repaired_before_anything_came_of_it(model, tmp_path):
    good, bad = write(tmp_path / "a.parquet", texts(12)), tmp_path / "b.parquet"
    bad.write_bytes(good.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"b\.parquet: not a complete Parquet file"):
        embed(model, [good, bad], tmp_path / "out")
    before = parts(tmp_path / "out")
    assert len(before) == 2  # nothing written is lost
    write(bad, texts(3))
    summary = embed(model, [good, bad], tmp_path / "out")
    assert (summary.rows, summary.scored_rows) == (15, 3)
    assert before.items() <= parts(tmp_path / "out").items()


def test_damage_inside_a_file_is_placed_and_costs_no_part(model, tmp_path):
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": texts(400)}), source, row_group_size=40, use_dictionary=False)
    group = pq.ParquetFile(source).metadata.row_group(5).column(0)
    data = bytearray(source.read_bytes())
    begin = group.data_page_offset
    data[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    source.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet: damaged after row 200 \("):
        embed(model, source, tmp_path / "out")
    assert len(parts(tmp_path / "out")) == 20  # 200 rows, ten to a part
    with pytest.raises(DataError, match="damaged after row 200 "):  # from the middle of a row group on
        embed(model, source, tmp_path / "out")
    whole = tmp_path / "whole" / "a.parquet"
    whole.parent.mkdir()
    write(whole, texts(200))
    embed(model, whole, tmp_path / "same")
    found, same = (pa.Table.from_batches(read(tmp_path / name).to_batches()) for name in ("out", "same"))
    assert found["vector"].equals(same["vector"])


def test_mistakes(model, tmp_path):
    source = write(tmp_path / "a.parquet", texts(12))
    out = tmp_path / "out"
    wrong = [
        (dict(columns={"text": "bodi"}), DataError, r"a\.parquet: no column 'bodi'; did you mean 'body'\? It has 'id'"),
        (dict(columns={"text": "id"}), DataError, "column 'id' holds int64, not text"),
        (dict(columns={"txt": "body"}), InputError, "embed reads text, not 'txt'; did you mean 'text'"),
        (dict(columns={}), DataError, "no column 'text'.*name the column"),
        (dict(ability=None), InputError, "ability: missing; .* has fill_mask"),
        (dict(ability="classify"), InputError, "has no classify"),
        (dict(options={"pool": 1}), InputError, "embed takes depth, normalize, pooling.*, not 'pool'"),
        (dict(options={"pooling": "max"}), InputError, "pooling: 'max' is not one of"),
        (dict(engine="spark"), ConfigError, "engine: 'spark' is not one of: local, ray"),
        (dict(part_rows=-1), ConfigError, "part_rows: must be a whole number >= 0"),
    ]
    for change, kind, message in wrong:
        with pytest.raises(kind, match=message):
            embed(model, source, out, **change)
    assert not (out / PLAN).exists()
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        embed(model, tmp_path / "none.csv", out)
    with pytest.raises(DataError, match="given twice"):
        embed(model, [source, source], out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"not empty \(notes.txt, ...\)"):
        embed(model, source, tmp_path / "full")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"id,body\n" + b"1,anna\n" * 3000)[:-12])
    with pytest.raises(DataError, match=r"cut\.csv\.gz.*damaged or truncated gzip"):
        embed(model, tmp_path / "cut.csv.gz", tmp_path / "cut", part_rows=1000)


def test_a_finished_part_that_cannot_be_read_is_named(model, tmp_path):
    source = write(tmp_path / "a.parquet", texts(35))
    embed(model, source, tmp_path / "out")
    before = parts(tmp_path / "out")
    part = tmp_path / "out" / "part-00000-000001.parquet"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(DataError, match=r"part-00000-000001\.parquet: damaged .*; delete it, and the same command"):
        embed(model, source, tmp_path / "out")
    part.unlink()
    assert embed(model, source, tmp_path / "out").scored_rows == 10
    assert parts(tmp_path / "out") == before


def test_a_full_disk_keeps_what_is_written(model, tmp_path, monkeypatch, cli):
    from litebert.bulk.folder import Folder

    source = write(tmp_path / "a.parquet", texts(35))
    write_file = Folder.write

    def full(self, name, data):
        if name == "part-00000-000002.parquet":
            raise OSError(28, "No space left on device", str(tmp_path / "out" / name))
        write_file(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", full)
        with pytest.raises(OSError, match="No space left"):
            embed(model, source, tmp_path / "out")
        command = ("score", model("pretraining"), source, "--out", tmp_path / "out", "--ability", "embed")
        told = cli(*command, "--column", "body", "--part-rows", "10", "--device", "cpu", "--workers", "1")
        assert (told.code, len(told.err.strip().splitlines())) == (2, 1), told
        assert "No space left on device" in told.err
    assert len(parts(tmp_path / "out")) == 2
    assert embed(model, source, tmp_path / "out").scored_rows == 15


def test_the_command(model, tmp_path, cli):
    source = write(tmp_path / "a.parquet", [*texts(12), ""])
    command = [
        "score",
        model("pretraining"),
        source,
        "--out",
        tmp_path / "out",
        "--ability",
        "embed",
        "--column",
        "body",
    ]
    command += [
        "--set",
        "pooling=cls",
        "--set",
        "normalize=true",
        "--part-rows",
        "5",
        "--device",
        "cpu",
        "--workers",
        "1",
    ]
    first = cli(*command)
    assert first.code == 0, first
    assert f"{tmp_path / 'out'}: 13 rows in 3 parts from 1 file" in first.out
    assert "1 row has an error" in first.out
    assert "row 13: text: is empty" in first.out
    assert set(read(tmp_path / "out")["pooling"].to_pylist()) == {"cls", None}
    again = json.loads(cli(*command, "--json").out)
    assert (again["rows"], again["scored_rows"]) == (13, 0)
    refused = cli(*command[:-4], "--workers", "1", "--dedupe")
    assert refused.code == 2
    assert "dedupe false, not true" in refused.err
    named = ["text=body" if part == "body" else part for part in command]
    assert json.loads(cli(*named, "--json").out)["scored_rows"] == 0  # the same run
    twice = cli(*command, "--column", "text=id")
    assert (twice.code, twice.err) == (2, "error: --column: text is given twice, 'body' and 'id'\n")


def test_a_script_without_a_guard_may_call_it(model, tmp_path):
    """Python's own `spawn` would run the script again in each worker."""
    source = write(tmp_path / "a.parquet", texts(31))
    script = tmp_path / "mine.py"
    script.write_text(
        f"import litebert\n"
        f"print(litebert.score({str(model('pretraining'))!r}, {str(source)!r}, {str(tmp_path / 'out')!r}, "
        "ability='embed', columns={'text': 'body'}, part_rows=10, workers=2, device='cpu').rows)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.stdout == "31\n", done.stderr


def test_groups_are_cut_by_rows_and_characters():
    from litebert.bulk.part import GROUP_CHARACTERS, _groups

    rows = [{"text": "x"}] * (GROUP_ROWS + 1)
    assert [len(group) for group in _groups(rows, range(len(rows)))] == [GROUP_ROWS, 1]
    long = [{"text": "x" * (GROUP_CHARACTERS // 2)}] * 5
    assert [len(group) for group in _groups(long, range(5))] == [2, 2, 1]


def test_litebert_score_is_public():
    assert litebert.score is score
