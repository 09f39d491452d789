"""Readers: the same documents from every file format, and the line of any error."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litebert.errors import DataError
from litebert.text import readers, sources
from litebert.text.readers import Problem, open_text, parse_block, read_blocks, read_documents
from litebert.text.sources import find_sources

COMPRESS = {
    ".txt": lambda data: data,
    ".txt.gz": gzip.compress,
    ".txt.xz": lambda data: lzma.compress(data, preset=0),
    ".txt.zst": zstandard.ZstdCompressor().compress,
    ".txt.bz2": bz2.compress,
}
TEXT = "The first line.\nThe second line.\n\nAnother document.\n" * 500


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def documents(path, *arguments, **options):
    return [document.lines for document in read_documents(path, *arguments, **options)]


def items(path, format="auto", text_field="text"):
    return [item for block in read_blocks(str(path), format) for item in parse_block(block, text_field)]


def problems(path, format="auto", text_field="text"):
    return [item.message for item in items(path, format, text_field) if isinstance(item, Problem)]


# --- lines of text files


@pytest.mark.parametrize("suffix", COMPRESS)
def test_open_text_reads_every_compression(tmp_path, suffix):
    path = write(tmp_path, "a" + suffix, COMPRESS[suffix](TEXT.encode()))
    assert list(open_text(path)) == TEXT.removesuffix("\n").split("\n")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compression_is_told_by_content(tmp_path, suffix):
    path = write(tmp_path, "no-suffix", COMPRESS[suffix](TEXT.encode()))
    assert len(list(open_text(path))) == TEXT.count("\n")


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.xz", ".txt.zst", ".txt.bz2"])
def test_two_archives_behind_each_other_are_one_text(tmp_path, suffix):
    path = write(tmp_path, "a" + suffix, COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n"))
    assert list(open_text(path)) == ["one", "two"]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d"]),  # only a line feed ends a line
    ],
)
def test_line_ends(tmp_path, data, lines):
    assert list(open_text(write(tmp_path, "a.txt", data))) == lines


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.xz", ".txt.zst", ".txt.bz2"])
def test_cut_off_archive_names_file_and_line(tmp_path, suffix):
    # Digits that hardly repeat, so that not all of them lie in the first block of the archive.
    text = "".join(f"{i * 7919 % 99991} {i * 104729 % 99991}\n\n" for i in range(80_000)).encode()
    data = COMPRESS[suffix](text)
    path = write(tmp_path, "a" + suffix, data[: len(data) * 9 // 10])
    lines, error = until_error(open_text(path))
    assert 1000 < len(lines) < text.count(b"\n")
    assert text.decode().startswith("\n".join(lines))
    match = re.fullmatch(rf"{path}:(\d+): damaged or truncated \w+ data \(.*\)", str(error))
    assert match is not None
    assert int(match[1]) >= len(lines)
    # And of the documents before the damage, only whole ones are given out.
    found, error = until_error(read_documents(path, "lines"))
    assert "truncated" in str(error)
    together = "".join(document.lines[0] + "\n\n" for document in found)
    assert len(found) > 500
    assert text.decode().startswith(together)


def until_error(iterator):
    found = []
    try:
        for item in iterator:
            found.append(item)
    except DataError as error:
        return found, error
    pytest.fail("no error")


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.xz", ".txt.zst", ".txt.bz2"])
def test_wrong_suffix(tmp_path, suffix):
    path = write(tmp_path, "a" + suffix, b"plain text\n")
    with pytest.raises(DataError, match=r"not \w+ data, although its name says so"):
        list(open_text(path))


def test_open_text_names_the_bad_line(tmp_path):
    with pytest.raises(DataError, match=r"a\.txt:3: not valid UTF-8: byte 2 of the line is 0xff"):
        list(open_text(write(tmp_path, "a.txt", b"good\ngood\nxy\xffz\n")))
    with pytest.raises(DataError, match=r"a\.txt:1: not valid UTF-8: .*it looks like cp949 \(Korean\)"):
        list(open_text(write(tmp_path, "a.txt", "나는 밥을 먹었다.\n".encode("cp949"))))
    with pytest.raises(DataError, match=r"b\.txt:2: a NUL byte"):
        list(open_text(write(tmp_path, "b.txt", b"good\nx\0y\n")))
    with pytest.raises(DataError, match=r"missing\.txt: no such file"):
        list(open_text(tmp_path / "missing.txt"))


def test_standard_input_needs_no_seeking(monkeypatch):
    class Pipe(io.RawIOBase):
        """Gives out three bytes at a time and cannot go back."""

        def __init__(self, data):
            self.data = io.BytesIO(data)

        def readable(self):
            return True

        def read(self, size=-1):
            return self.data.read(min(3, size))

    for compress in COMPRESS.values():
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": Pipe(compress(TEXT.encode()))}))
        assert sum(1 for _ in open_text("-")) == TEXT.count("\n")


# --- documents of text files


def test_blank_lines_end_documents(tmp_path):
    path = write(tmp_path, "a.txt", "\n\n  One. \r\n\r\nTwo.\nThree.\n \t \nFour.\n\n\n\n")
    assert documents(path, "lines") == [["One."], ["Two.", "Three."], ["Four."]]
    assert [document.where for document in read_documents(path, "lines")] == [f"{path}:{line}" for line in (3, 5, 8)]


def naive_documents(text):
    """The rule in one breath, for a file that fits into memory."""
    found = [[]]
    for line in text.split("\n"):
        if line.strip():
            found[-1].append(line.strip())
        else:
            found.append([])
    return [lines for lines in found if lines]


small_texts = st.lists(st.sampled_from(["\n", "\n", " \n", "ab", "é", "한국", " ", "\r\n", "word "]), max_size=120)


@given(pieces=small_texts, read=st.integers(1, 40))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_lose_nothing_and_do_not_depend_on_how_bytes_arrive(tmp_path, pieces, read):
    text = "".join(pieces)
    path = write(tmp_path, "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "BLOCK", 16)
        patch.setattr(sources, "PIECE", read)
        blocks = [(block.data, block.line) for block in read_blocks(str(path), "lines")]
        assert b"".join(data for data, _ in blocks) == text.encode()
        assert [line for _, line in blocks] == [
            1 + b"".join(data for data, _ in blocks[:i]).count(b"\n") for i in range(len(blocks))
        ]
        assert documents(path, "lines") == naive_documents(text)
        # Documents that are too long are cut: all the text is still there, in order, never inside a character.
        patch.setattr(readers, "MAX_DOCUMENT", 24)
        cut = documents(path, "lines")
        assert "".join("".join(lines) for lines in cut).replace(" ", "") == "".join(text.split())
        sizes = [len(block.data) for block in read_blocks(str(path), "lines")]
        assert max(sizes, default=0) <= 24
        patch.setattr(sources, "PIECE", 7)
        assert documents(path, "lines") == cut


def test_long_lines_are_cut_at_spaces(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK", 1 << 10)
    monkeypatch.setattr(readers, "MAX_DOCUMENT", 8 << 10)
    monkeypatch.setattr(readers, "MAX_LINE", 64)
    path = write(tmp_path, "long.txt", "word " * 20_000)
    found = documents(path, "paragraphs")
    assert len(found) == 13  # 100,000 bytes in documents of 8 KiB
    lines = [line for document in found for line in document]
    assert max(map(len, lines)) <= 64
    assert " ".join(line.strip() for line in lines).split() == ["word"] * 20_000
    path = write(tmp_path, "no-spaces.txt", "한" * 1000)
    assert [len(line) for line in documents(path, "lines")[0]] == [64] * 15 + [40]


@pytest.mark.parametrize("bad", [b"caf\xe9 au lait", b"nul \0 byte"])
def test_only_the_bad_document_is_lost(tmp_path, bad):
    path = write(tmp_path, "a.txt", b"One.\n\nTwo.\n" + bad + b"\n\nThree.\n")
    found = items(path, "lines")
    assert [item.lines for item in found if not isinstance(item, Problem)] == [["One."], ["Three."]]
    assert [item.message.split(": ")[0] for item in found if isinstance(item, Problem)] == [f"{path}:4"]
    with pytest.raises(DataError, match=r"a\.txt:4: "):
        documents(path, "lines")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_text_of_wide_characters(tmp_path, encoding):
    content = TEXT.replace("o", "좋😀").encode(encoding)
    path = write(tmp_path, "a.txt", content)
    assert documents(path) == documents(write(tmp_path, "b.txt", TEXT.replace("o", "좋😀").encode()))
    for cut in (1, 3, len(content) // 2 | 1):  # within a character
        damaged = write(tmp_path, "c.txt", content[:-cut])
        with pytest.raises(DataError, match=rf"c\.txt:\d+: not {encoding.upper()}"):
            documents(damaged)


# --- which format it is


PARAGRAPHS = "He came. She went. They stayed for a long time.\n" * 20
SENTENCES = "He came.\nShe went.\nThey stayed for a long time.\n\n" * 20


@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        ("a.txt", PARAGRAPHS, "paragraphs"),
        ("a.txt", SENTENCES, "lines"),
        ("a.txt", "나는 갔다. 그는 왔다. 우리는 기다렸다.\n" * 9, "paragraphs"),
        ("a.txt", "他来了。我走了。\n" * 9, "paragraphs"),
        ("a.txt", "他来了。\n我走了。\n" * 9, "lines"),
        ("a.jsonl", "anything", "jsonl"),
        ("a.jsonl.gz", "anything", "jsonl"),
        ("a", '{"text": "He came."}\n', "jsonl"),
        ("a.txt", "{curly} braces are not JSON. No.\n" * 9, "paragraphs"),
        ("wiki_00", '{"id": "1", "title": "A", "text": "A\\nHe came."}\n', "wikiextractor-json"),
        ("wiki_00", '<doc id="1" url="u" title="A">\nA\n\nHe came.\n</doc>\n', "wikiextractor"),
        ("a.parquet", "anything", "parquet"),
    ],
)
def test_auto_tells_the_format(name, text, format):
    assert readers.detect_format(name, text.encode()) == format


# --- rows


def test_json_lines(tmp_path):
    rows = ['{"text": "One.\\n\\nTwo two.", "id": 1}', "", '{"body": 3, "text": " 셋. \\ud83d\\ude00"}']
    path = write(tmp_path, "a.jsonl", "\r\n".join(rows))
    assert documents(path) == [["One.", "Two two."], ["셋. 😀"]]
    assert documents(write(tmp_path, "b.jsonl", '{"body": "x"}\n'), text_field="body") == [["x"]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "a"', r"a.jsonl:2: not valid JSON: Expecting ',' delimiter \(column 13\)"),
        ('{"txet": "a", "id": 1}', r"a.jsonl:2: no field 'text' \(fields: 'txet', 'id'\).*did you mean 'txet'"),
        ('{"text": null}', r"a.jsonl:2: field 'text' is NoneType, not text"),
        ("[1, 2]", r"a.jsonl:2: each line must be a JSON object \(an array\?"),
        ('"text"', r"a.jsonl:2: each line must be a JSON object"),
        ("[" * 100_000, r"a.jsonl:2: nested more than 64 levels deep"),
        ('{"text": "a\\u0000b"}', r"a.jsonl:2: a NUL byte"),
        ('{"text": "\\ud800"}', r"a.jsonl:2: not valid UTF-8"),
        (b'{"text": "\xff"}', r"a.jsonl:2: not valid UTF-8"),
    ],
)
def test_bad_json_rows(tmp_path, row, message):
    row = row if isinstance(row, bytes) else row.encode()
    path = write(tmp_path, "a.jsonl", b'{"text": "good"}\n' + row + b'\n{"text": "good"}\n')
    with pytest.raises(DataError, match=message):
        documents(path)
    found = items(path)
    assert [isinstance(item, Problem) for item in found] == [False, True, False]


def test_a_row_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_ROW", 3 << 20)
    path = write(tmp_path, "a.jsonl", '{"text": "good"}\n' + '{"text": "' + "a" * (4 << 20) + '"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:1: a row of more than 3 MiB"):
        documents(path)


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    texts = ["One.\n\nTwo.", "셋.", "four " * 1000]
    for kind in (pa.string(), pa.large_string()):
        pq.write_table(pa.table({"id": [1, 2, 3], "text": pa.array(texts, kind)}), path, row_group_size=2)
        assert documents(path) == [["One.", "Two."], ["셋."], [texts[2].strip()]]
    renamed = path.rename(tmp_path / "no-suffix")
    assert len(documents(renamed)) == 3


def test_parquet_in_several_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK", 100)
    path = tmp_path / "a.parquet"
    texts = [f"text {i}" for i in range(200)]
    pq.write_table(pa.table({"text": texts}), path)
    blocks = list(read_blocks(str(path)))
    assert len(blocks) > 5
    assert blocks[-1].position == path.stat().st_size
    assert [document.where for document in read_documents(path)] == [f"{path}: row {i}" for i in range(1, 201)]
    assert documents(path) == [[text] for text in texts]


def test_bad_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", None, "b"], "txt": [1, 2, 3]}), path)
    assert problems(path) == [f"{path}: row 2: the text is null"]
    with pytest.raises(DataError, match=r"no column 'body'.*columns: 'text', 'txt'"):
        documents(path, text_field="body")
    with pytest.raises(DataError, match="column 'txt' holds int64, not text"):
        documents(path, text_field="txt")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.parquet: row 1: damaged, or not Parquet"):
        documents(path)
    # Bytes that are no UTF-8 can stand in a string column.
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({"text": bad}), path)
    assert [message.split(" of the line")[0] for message in problems(path)] == [
        f"{path}: row 2: not valid UTF-8: byte 0"
    ]


MARKUP = """<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="A &amp; B">
A &amp; B

A &amp; B are letters. They are &lt;old&gt;.
Second paragraph.

</doc>
<doc id="13" url="https://en.wikipedia.org/wiki?curid=13" title="Empty">
Empty

</doc>
<doc id="14" url="u" title="C "quoted"">
Text without its title.
</doc>
"""


def test_wikiextractor_folder(tmp_path):
    (tmp_path / "AA").mkdir()
    write(tmp_path, "AA/wiki_00", MARKUP)
    rows = [
        {"id": "9", "url": "u", "title": "T", "text": "T\n\nBody &lt;1&gt;.\nMore."},
        {"id": "10", "text": "Plain."},
    ]
    write(tmp_path, "AA/wiki_01", "\n".join(map(json.dumps, rows)))
    write(tmp_path, "AA/wiki_02.bz2", bz2.compress(MARKUP.encode()))
    markup = [["A & B are letters. They are <old>.", "Second paragraph."], [], ["Text without its title."]]
    sources = [source.path for source in find_sources([tmp_path])]
    assert [documents(path) for path in sources] == [markup, [["Body <1>.", "More."], ["Plain."]], markup]
    assert documents(sources[1], "jsonl")[0] == ["T", "Body &lt;1&gt;.", "More."]


def test_wikiextractor_blocks_end_with_a_document(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK", 100)
    path = write(tmp_path, "wiki_00", MARKUP * 10)
    blocks = list(read_blocks(str(path)))
    assert len(blocks) > 10
    assert all(block.data.endswith(b"</doc>\n") for block in blocks)
    assert documents(path) == 10 * documents(write(tmp_path, "wiki_01", MARKUP))


def test_bad_markup(tmp_path):
    path = write(
        tmp_path, "wiki_00", '<doc id="1" url="u" title="A">\nLost.\n' + MARKUP + 'stray\n<doc id="2">\nLost too.'
    )
    assert problems(path) == [
        f"{path}:1: <doc> without </doc>",
        f"{path}:17: text outside <doc> ... </doc>",
        f"{path}:18: <doc> without </doc>",
    ]
    bad = write(tmp_path, "wiki_01", MARKUP.encode().replace(b"Second", b"Sec\xffnd"))
    assert [item.message.split(": ")[0] for item in items(bad) if isinstance(item, Problem)] == [f"{bad}:5"]
    assert len(items(bad)) == 3


# --- finding files


def test_find_sources(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden", "sub/c.txt", "sub/deep/d.txt", ".git/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path, name, "x")

    def found(*paths):
        return [source.path.removeprefix(f"{tmp_path}/") for source in find_sources(paths)]

    assert found(tmp_path) == ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert found(tmp_path / "b.txt", tmp_path / "sub") == ["b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert found(f"{tmp_path}/**/*.txt") == ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert found(f"{tmp_path}/s*", "-") == ["sub/c.txt", "sub/deep/d.txt", "-"]
    for paths, message in {
        (tmp_path / "a.txt", tmp_path): r"a\.txt: given twice",
        (tmp_path / "none.txt",): r"none\.txt: no such file or folder",
        (f"{tmp_path}/*.zip",): r"\*\.zip: no such file or folder",
    }.items():
        with pytest.raises(DataError, match=message):
            find_sources(paths)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no files in this folder"):
        find_sources([tmp_path / "empty"])
