"""Tables from files as people have them: byte-order marks, quotes, line breaks, encodings, compression."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from litebert.errors import DataError
from litebert.tasks.tables import read_table, read_text, table_of


def write(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_csv_with_quotes_line_breaks_and_a_byte_order_mark(tmp_path):
    path = write(tmp_path, "a.csv", '\ufefftext,label\r\n"one, ""two""\nthree",1\r\n\r\nfour,0\r\n')
    table = read_table(path)
    assert table.columns == ("text", "label")
    assert table.rows == [('one, "two"\nthree', "1"), ("four", "0")]
    assert [table.where(i) for i in range(2)] == [f"{path}:2", f"{path}:5"]
    assert table.values("label") == ["1", "0"]


@pytest.mark.parametrize(("delimiter", "name"), [(";", "a.csv"), ("\t", "a.csv"), ("\t", "a.txt"), ("|", "a.csv")])
def test_the_delimiter_is_told_from_the_header(tmp_path, delimiter, name):
    path = write(tmp_path, name, f"text{delimiter}label\na, b{delimiter}1\n")
    assert read_table(path).rows == [("a, b", "1")]


def test_stray_quotes_of_a_tsv_are_text(tmp_path):
    path = write(tmp_path, "a.tsv", 'text\tlabel\n"open\t0\nshe said "no"\t1\n"all"\t1\nend"\t0\n')
    assert [row[0] for row in read_table(path).rows] == ['"open', 'she said "no"', '"all"', 'end"']


def test_a_tsv_quoted_throughout_is_unquoted(tmp_path):
    path = write(tmp_path, "a.tsv", 'text\tlabel\n"she said ""no"""\t1\nplain\t0\n')
    assert read_table(path).rows == [('she said "no"', "1"), ("plain", "0")]
    path = write(tmp_path, "b.tsv", '"text"\t"label"\n"plain"\t"0"\n')
    assert (read_table(path).columns, read_table(path).rows) == (("text", "label"), [("plain", "0")])
    path = write(tmp_path, "c.tsv", 'text\tlabel\n"two\nlines\tand a tab"\t1\n"b"\t0\n')
    assert read_table(path).rows == [("two\nlines\tand a tab", "1"), ("b", "0")]


def test_other_line_separators_are_text(tmp_path):
    path = write(tmp_path, "a.tsv", "text\tlabel\none\u2028two\x85three\t1\n")
    assert read_table(path).rows == [("one\u2028two\x85three", "1")]


def test_short_rows_name_their_line(tmp_path):
    path = write(tmp_path, "a.tsv", "text\tlabel\ngood\t1\nbad\n")
    with pytest.raises(DataError, match=r"a\.tsv:3: 1 column, but the header has 2"):
        read_table(path)
    path = write(tmp_path, "b.csv", 'text,label\n"never closed,1\nmore,0\n')
    with pytest.raises(DataError, match=r"b\.csv:2: 1 column, .* quote"):
        read_table(path)


def test_jsonl_fills_missing_keys(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"text": "하나", "label": 1}\n\n{"text": "둘", "id": "x"}\n')
    table = read_table(path)
    assert table.columns == ("text", "label", "id")
    assert table.rows == [("하나", 1, None), ("둘", None, "x")]
    assert table.where(1) == f"{path}:3"


@pytest.mark.parametrize("data", [[{"text": "a"}], {"data": [{"text": "a"}]}])
def test_json_lists(tmp_path, data):
    assert read_table(write(tmp_path, "a.json", json.dumps(data))).rows == [("a",)]


def test_bad_json_names_its_line(tmp_path):
    with pytest.raises(DataError, match=r"a\.jsonl:2: not valid JSON"):
        read_table(write(tmp_path, "a.jsonl", '{"text": "a"}\n{"text": \n'))
    with pytest.raises(DataError, match=r"b\.jsonl:1: expected an object"):
        read_table(write(tmp_path, "b.jsonl", "[1]\n"))
    with pytest.raises(DataError, match="expected a list of objects"):
        read_table(write(tmp_path, "c.json", '{"text": "a"}'))
    lines = read_table(write(tmp_path, "d.json", '{"text": "今天", "label": 1}\n{"text": "b", "label": 0}\n'))
    assert (lines.columns, lines.rows) == (("text", "label"), [("今天", 1), ("b", 0)])
    with pytest.raises(DataError, match=r"e\.json:2: not valid JSON"):
        read_table(write(tmp_path, "e.json", '{"text": "a"}\n{"text" "b"}\n'))
    with pytest.raises(DataError, match=r"f\.json:2: not valid JSON"):  # one object, damaged
        read_table(write(tmp_path, "f.json", '{"data": [{}\n{"text": "b"}]}'))


def test_parquet_and_its_class_names(tmp_path):
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    features["tags"] = {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "List"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [0], None]})
    path = tmp_path / "a.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), path)
    assert read_table(path).rows == [("a", "pos", ["O", "B-X"]), ("b", "neg", ["O"]), ("c", None, None)]
    assert read_table(path).where(2) == f"{path}:3"
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_table(path)


def test_compressed_files(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"text,label\na,1\n"))
    assert read_table(path).rows == [("a", "1")]


def test_encodings(tmp_path):
    path = write(tmp_path, "a.csv", "문장,라벨\n좋다,1\n", "cp949")
    with pytest.raises(DataError, match=r"a\.csv:1: not UTF-8.*cp949 \(Korean\).*--set data\.encoding=cp949"):
        read_table(path)
    assert read_table(path, encoding="cp949").rows == [("좋다", "1")]
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        assert read_text(write(tmp_path, "b.txt", "좋다", encoding)) == "좋다"
    with pytest.raises(DataError, match=r"it looks like utf-32le \(four bytes a character\)"):
        read_text(path := write(tmp_path, "c.txt", "좋다 a", "utf-32-le"))
    assert read_text(path, "utf-32-le") == "좋다 a"
    assert read_text(write(tmp_path, "b.txt", "좋다", "utf-16"), "cp949") == "좋다"  # the mark counts
    (tmp_path / "d.txt").write_bytes("좋다".encode("utf-16")[:-1])
    with pytest.raises(DataError, match=r"d\.txt: not UTF-16\S* \(truncated data\)"):
        read_text(tmp_path / "d.txt")
    with pytest.raises(DataError, match="cannot decode it as 'klingon'"):
        read_table(path, encoding="klingon")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.csv", "text,label\n", "a header but no rows"),
        ("a.csv", "text,text\na,b\n", "two columns are named 'text'"),
        ("a.xls", "x", "unknown file type .xls"),
    ],
)
def test_what_cannot_be_a_table(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path, name, text))
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "missing.csv")


def test_a_wrong_column_name_shows_the_columns(tmp_path):
    table = read_table(write(tmp_path, "a.csv", "sentence,label\na,1\n"))
    with pytest.raises(DataError, match=r"no column 'sentense'; did you mean 'sentence'\? It has: 'sentence', 'label'"):
        table.values("sentense")
    with pytest.raises(DataError, match=r"no column 'x'\. It has: 'sentence', 'label'"):
        table.values("x")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "dev: no rows"),
        ({"text": [], "label": []}, "dev: no rows"),
        (7, "dev: expected a file's path, a list of dictionaries or tuples, .* got int"),
        ([7], "dev:1: expected an object"),
        ([("a", 1), ("b",)], "dev:2: 1 column, but the first row has 2"),
        ({"text": ["a", "b"], "label": [1]}, "dev: columns of different lengths: text 2, label 1"),
        ({"text": "ab"}, "dev: column 'text': expected a list, got 'ab'"),
    ],
)
def test_rows_in_memory_that_are_no_table(rows, message):
    with pytest.raises(DataError, match=message):
        table_of("dev", rows)


def test_texts_and_labels_come_as_a_pair_of_columns():
    """As scikit-learn takes them; two texts with two labels were read as two rows."""
    expected = [("good", 1), ("bad", 0)]
    assert table_of("train", (["good", "bad"], [1, 0])).rows == expected
    assert table_of("train", (np.array(["good", "bad"]), np.array([1, 0]))).rows == expected
    assert table_of("train", (("good", 1), ("bad", 0))).rows == expected  # a tuple of rows
    assert table_of("train", [("good", 1), ("bad", 0)]).rows == expected
    with pytest.raises(DataError, match="columns of different lengths: 1 2, 2 3"):
        table_of("train", (["good", "bad"], [1, 0, 1]))


def test_missing_values_and_named_classes_of_rows_in_memory():
    import datasets
    import pandas

    frame = pandas.DataFrame({"text": ["a", None], "label": pandas.array([1, None], dtype="Int64")})
    assert table_of("dev", frame).rows == [("a", 1), (None, None)]
    with pytest.raises(DataError, match="dev: two columns have the same name"):
        table_of("dev", pandas.concat([frame, frame], axis=1))
    names = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    split = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, -1]}, features=names)
    assert table_of("dev", split).rows == table_of("dev", split.data.table).rows == [("a", "yes"), ("b", None)]
    assert table_of("dev", split).where(1) == "dev:2"
