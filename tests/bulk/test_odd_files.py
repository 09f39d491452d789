"""Files that are empty, damaged, or not what their name says: one sentence, or one bad row."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from small_runs import embed, parts, read, texts, write

from litebert.bulk import reading
from litebert.bulk.score import score
from litebert.errors import ConfigError, DataError, InputError, LitebertError

NO_ROWS = {
    "b.csv": b"",
    "c.jsonl": b"\n",
    "d.csv": b"id,body\n",
    "e.tsv": b"\n\n",
}


def test_files_without_rows_have_the_columns_of_the_others(model, tmp_path):
    """Also as the first, whose part other programs take the columns from."""
    for name, data in NO_ROWS.items():
        (tmp_path / name).write_bytes(data)
    full = tmp_path / "z.csv"
    full.write_text("\nid,body\n1,anna\n")
    sources = [*(tmp_path / name for name in NO_ROWS), full]
    summary = embed(model, sources, tmp_path / "out", keep=["id"])
    assert (summary.rows, summary.parts, summary.inputs, summary.errors) == (1, 5, 5, 0)
    assert embed(model, sources, tmp_path / "out", keep=["id"]).scored_rows == 0
    table = ds.dataset(tmp_path / "out", format="parquet").to_table()
    assert table["id"].to_pylist() == ["1"]
    assert embed(model, sources, tmp_path / "two", keep=["id"], workers=2).rows == 1
    assert parts(tmp_path / "two") == parts(tmp_path / "out")
    with pytest.raises(DataError, match=r"e\.tsv: empty, without rows or columns"):
        embed(model, [tmp_path / "c.jsonl", tmp_path / "e.tsv"], tmp_path / "none")


def test_a_run_goes_on_without_a_bad_file(model, tmp_path):
    """As docs/howto/scale.md says: an empty file in its place, and its parts deleted, if there are any."""
    good, bad = write(tmp_path / "a.parquet", texts(12)), tmp_path / "b.csv.gz"
    bad.write_bytes(gzip.compress(b"id,body\n" + b"1,anna\n" * 9000)[:-12])
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"b\.csv\.gz, after line [\d,]+: damaged or truncated gzip"):
        embed(model, [good, bad], out, part_rows=1000)
    bad.write_bytes(b"")
    with pytest.raises(DataError, match=r"b\.csv\.gz has changed .*; delete its parts \(part-00001-\*\.parquet\)"):
        embed(model, [good, bad], out, part_rows=1000)
    for part in out.glob("part-00001-*.parquet"):
        part.unlink()
    summary = embed(model, [good, bad], out, part_rows=1000)
    assert (summary.rows, summary.scored_rows, summary.parts) == (12, 0, 2)


NOT_WHAT_THEY_SEEM = {
    "a.json": (
        json.dumps([{"body": "anna"}], indent=1).encode(),
        "one JSON value for the whole file; write one object",
    ),
    "b.json": (b'[{"body": "anna"}]', r"one JSON value .* jq -c"),
    "c.json": (json.dumps({"body": "anna"}, indent=1).encode(), "one JSON value for the whole file"),
    "d.jsonl": (b"anna\noslo\n", r"none of the first 1,000 lines is an object with fields \(line 1: not JSON"),
    "e.jsonl": (b"\n{}\n", r"an object with fields \(line 2: it has none\)"),
    "f.csv": (b'id,"body\n1,anna\n', "the header: a quote is not closed"),
    "g.csv": ("id,body\n1,anna\n".encode("utf-16-le"), r"many zero bytes; if it is UTF-16 .*encoding: utf-16-le"),
    "h.csv": (b"PK\x03\x04" + bytes(100), "a zip archive or a spreadsheet; save it as CSV"),
    "i.txt": (b"%PDF-1.7\n", "a PDF; extract its text first"),
    "j.csv": (
        ",".join(f"c{number}" for number in range(999)).encode(),
        r"It has 'c0', .*'c29', \.\.\. \(999 in all\);?",
    ),
    "k": (None, r"a Parquet file; its name must end in \.parquet"),
}


@pytest.mark.parametrize("name", NOT_WHAT_THEY_SEEM)
def test_a_file_that_is_something_else(model, tmp_path, name):
    data, message = NOT_WHAT_THEY_SEEM[name]
    path = tmp_path / name
    path.write_bytes(data) if data is not None else write(path, texts(3))
    with pytest.raises(DataError, match=rf"^{path}: .*{message}"):
        embed(model, path, tmp_path / "out", columns={"text": "text" if name in ("i.txt", "k") else "body"})
    assert not (tmp_path / "out").exists()


def test_two_columns_of_one_name(model, tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], ["body", "x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: two columns are called 'x'"):
        embed(model, tmp_path / "a.parquet", tmp_path / "out")
    with pytest.raises(ConfigError, match="keep: 'body' is named twice"):
        embed(model, write(tmp_path / "b.parquet", texts(3)), tmp_path / "out", keep=["id", "body", "body"])


def test_a_text_is_one_column(model, tmp_path):
    source = write(tmp_path / "a.parquet", texts(3), title=["x"] * 3)
    for names in (["body", "title"], []):
        with pytest.raises(InputError, match=f"columns: text is one column, not {len(names)}"):
            embed(model, source, tmp_path / "out", columns={"text": names})


def test_rows_without_a_value(model, tmp_path):
    pq.write_table(pa.table({"body": ["anna", None]}), tmp_path / "a.parquet")
    embed(model, tmp_path / "a.parquet", tmp_path / "texts")
    assert read(tmp_path / "texts")["error"].to_pylist() == [None, "text: no value"]
    columns = {"passage": ["anna moved."] * 3, "question": ["who?"] * 3, "options": [["a", None], None, ["a", "b"]]}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    score(model("multiple-choice"), tmp_path / "b.parquet", tmp_path / "choices", device="cpu", workers=1)
    errors = ["options: no value in one of 2", "options: no value", None]
    assert read(tmp_path / "choices")["error"].to_pylist() == errors


def test_a_quote_that_is_not_closed_is_told(model, tmp_path):
    (tmp_path / "a.csv").write_text('\nid,body\n1,anna\n2,"oslo\n3,rome\n')
    summary = embed(model, tmp_path / "a.csv", tmp_path / "out")
    assert summary.errors == 1
    table = read(tmp_path / "out")
    assert table["body"].to_pylist() == ["anna", "oslo\n3,rome\n"]
    assert table["error"].to_pylist() == [None, "a quote is not closed: line 4 to the end of the file is one row"]
    (tmp_path / "b.csv").write_text('id,body\n1,"anna\n""x"""')  # closed, and no line end
    embed(model, tmp_path / "b.csv", tmp_path / "closed")
    assert read(tmp_path / "closed").select(["body", "error"]).to_pylist() == [{"body": 'anna\n"x"', "error": None}]


@pytest.mark.parametrize("before", ["2,", '2,"', '2,"a\n'])
def test_a_line_of_csv_that_is_too_long_is_one_bad_row(model, tmp_path, monkeypatch, before):
    """Whether or not it is in quotes; the rows after it are read as they are."""
    monkeypatch.setattr(reading, "MAX_ROW", 200)
    after = '\nend",z' if '"' in before else ",z"
    rows = ["id,body,x", "1,anna,y", before + "w" * 1000 + after, "3,oslo,u", ""]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    embed(model, tmp_path / "a.csv", tmp_path / "out")
    table = read(tmp_path / "out")
    assert table["id"].to_pylist() == ["1", "2" if before == '2,"a\n' else None, "3"]
    assert table["body"].to_pylist()[::2] == ["anna", "oslo"]
    first, bad, last = table["error"].to_pylist()
    assert first is last is None
    assert bad.startswith("more than ")


def test_what_a_run_writes_is_not_its_input(model, tmp_path):
    """A folder of results in the folder of the inputs."""
    write(tmp_path / "a.parquet", texts(12))
    assert embed(model, tmp_path, tmp_path / "out").rows == 12
    again = embed(model, tmp_path, tmp_path / "out")
    assert (again.rows, again.scored_rows) == (12, 0)
    assert embed(model, tmp_path / "out" / "part-00000-000000.parquet", tmp_path / "again").rows == 10
    with pytest.raises(DataError, match="no input files"):
        embed(model, tmp_path / "out", tmp_path / "out")


def test_parts_that_vanish_are_told(model, tmp_path):
    """As where machines of a cluster each have a folder of that name."""
    source = write(tmp_path / "a.parquet", texts(25))
    first = tmp_path / "out" / "part-00000-000000.parquet"
    with pytest.raises(
        LitebertError, match=r"parts of .*a\.parquet are missing; rerun the same command \(with several"
    ):
        embed(model, source, tmp_path / "out", progress=lambda _: first.unlink(missing_ok=True))
    assert embed(model, source, tmp_path / "out").scored_rows == 10


def test_marks_and_logs_beside_the_data_are_left_out(model, tmp_path, monkeypatch):
    table = tmp_path / "_tables" / "reviews"
    (table / "day=1" / "_temporary").mkdir(parents=True)
    (table / "_delta_log").mkdir()
    for name in ("_SUCCESS", "_delta_log/0.json", "day=1/_temporary/b.csv"):
        (table / name).write_text('{"commit": 1}\n')
    write(table / "day=1" / "a.parquet", texts(3))
    monkeypatch.chdir(tmp_path)
    for given in (table, f"{table}/**/*.*", "_tables/reviews", "_tables/reviews/", "_tables/*/*/*.parquet"):
        assert [each.path.rpartition("/")[2] for each in reading.find_inputs([given])] == ["a.parquet"], given
    assert len(reading.find_inputs([table / "_delta_log" / "0.json"])) == 1  # named by itself


# ---------------------------------------------------------------------------------------------------------------------
# Stores that fail in the middle


def test_a_store_that_is_gone_ends_the_run_with_one_sentence(model, tmp_path, monkeypatch):
    """Whatever the file system raises; what is written stays."""
    import fsspec
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/gone/a.parquet", write(tmp_path / "a.parquet", texts(40)).read_bytes())
    pq.write_table(pa.table({"body": texts(3000)}), tmp_path / "b.parquet", row_group_size=1000, use_dictionary=False)
    memory.pipe_file("/gone/b.parquet", (tmp_path / "b.parquet").read_bytes())
    memory.pipe_file("/gone/b.csv", b"id,body\n" + b"1,anna\n" * 3_000_000)
    read_bytes, left = MemoryFile.read, [0]

    def fail(self, size=-1):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("the connection is lost\nand more")
        return read_bytes(self, size)

    for name, count, message in (
        ("a.parquet", 0, r"a\.parquet: cannot read \(the connection is lost\)$"),
        ("b.parquet", 3, r"b\.parquet, after row 1,000: cannot read \(the connection is lost\)$"),
        ("b.csv", 3, r"b\.csv, after line [\d,]+: cannot read \(the connection is lost\)$"),
    ):
        left[0] = count
        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "read", fail)
            with pytest.raises(DataError, match=message):
                list(reading.read_parts(reading.find_inputs([f"memory://gone/{name}"])[0], 1000))
    pipe = MemoryFileSystem.pipe_file

    def full(self, path, value, **more):
        if path.endswith("part-00000-000002.parquet"):
            raise RuntimeError("no more room")
        pipe(self, path, value, **more)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "pipe_file", full)
        with pytest.raises(
            DataError, match=r"^memory://gone-out/part-00000-000002\.parquet: cannot write: no more room$"
        ):
            embed(model, tmp_path / "a.parquet", "memory://gone-out")
    assert embed(model, tmp_path / "a.parquet", "memory://gone-out").scored_rows == 20


def test_an_unexpected_error_in_a_worker_is_named(model, tmp_path):
    """And not taken for a death for want of memory."""
    from litebert.bulk.local import run_workers
    from litebert.bulk.part import Work

    source = write(tmp_path / "a.parquet", texts(5))
    work = Work(str(model("pretraining")), "no_such", {}, {}, None, False, 100, "torch", "cpu", 1, 8192)
    (found,) = reading.find_inputs([source])
    feed = ((found, part) for part in reading.read_parts(found, 10))
    message = r"a\.parquet, rows 1 to 5: failed 3 times \(KeyError: 'no_such'\)\. Finished parts are kept"
    with pytest.raises(LitebertError, match=message):
        run_workers(work, None, str(tmp_path / "out"), feed, 1, lambda *_: None)
