"""Building a store: the same bytes after any interruption, and a clear message when it fails."""

from __future__ import annotations

import gzip
import json
import lzma
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_tokenizer import DyingTokenizer, UninterruptedTokenizer, WordTokenizer, word_id

from litebert.errors import DataError, InputError, LitebertError, MissingExtraError
from litebert.text import build, readers, store_writer
from litebert.text.build import BuildOptions, build_store, plan_parts
from litebert.text.sources import Source
from litebert.text.store import TokenStore

HERE = Path(__file__).parent
TOKENIZER = WordTokenizer()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Every file a part of its own, many blocks per file, many record batches per part."""
    monkeypatch.setattr(build, "SMALL_FILE", 1)
    monkeypatch.setattr(readers, "BLOCK", 2000)
    monkeypatch.setattr(store_writer, "BATCH_TOKENS", 700)


def make_documents(count, seed):
    rng = random.Random(seed)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    return [
        [" ".join(rng.choices(words, k=rng.randint(2, 9))).capitalize() + "." for _ in range(rng.randint(1, 9))]
        for _ in range(count)
    ]


@pytest.fixture
def corpus(tmp_path):
    """Six files, and the documents that are in them."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    documents = [make_documents(60, seed) for seed in range(6)]
    texts = ["".join("\n".join(document) + "\n\n" for document in part) for part in documents]
    (folder / "0.txt").write_text(texts[0])
    (folder / "1.txt.gz").write_bytes(gzip.compress(texts[1].encode()))
    (folder / "2.txt.xz").write_bytes(lzma.compress(texts[2].encode()))
    rows = ({"text": " ".join(document)} for document in documents[3])
    (folder / "3.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.table({"text": ["\n".join(document) for document in documents[4]]}), folder / "4.parquet")
    (folder / "5").write_text(
        "".join(f'<doc id="{i}" url="u" title="T">\nT\n\n{" ".join(d)}\n</doc>\n' for i, d in enumerate(documents[5]))
    )
    return folder, [document for part in documents for document in part]


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def contents(opened):
    return [[sentence.tolist() for sentence in document] for document in opened.documents()]


def expected(documents):
    return [[[word_id(word) for word in sentence.split()] for sentence in document] for document in documents]


# --- what is in a store


def test_every_format_gives_its_documents(corpus, tmp_path):
    folder, documents = corpus
    report = build_store([folder], TOKENIZER, tmp_path / "store", workers=1)
    opened = TokenStore.open(tmp_path / "store", TOKENIZER)
    assert contents(opened) == expected(documents)
    assert report.documents == opened.num_documents == 360
    assert (report.sentences, report.tokens) == (opened.num_sentences, opened.num_tokens)
    assert report.formats == {"jsonl": 1, "lines": 3, "parquet": 1, "wikiextractor": 1}
    assert report.skipped == {}
    assert report.parts == 6
    assert opened.dtype == np.uint16
    assert opened.manifest["sources"][1]["path"] == str(folder / "1.txt.gz")
    opened.verify()
    # Small blocks and batches are part of this test, or it would prove little.
    assert opened.table().column(0).num_chunks > 12
    assert len(list(readers.read_blocks(str(folder / "0.txt"), "lines"))) > 3


def test_same_bytes_for_any_number_of_workers(corpus, tmp_path):
    folder, _ = corpus
    options = BuildOptions(deduplicate=True)
    trees = []
    for workers in (1, 3):
        build_store([folder], TOKENIZER, tmp_path / f"store{workers}", options, workers=workers)
        trees.append(tree(tmp_path / f"store{workers}"))
    assert trees[0] == trees[1]


def test_paragraphs_are_split_and_empty_sentences_dropped(tmp_path):
    text = "One two. Three four!\n~~~\n\n~~ ~\n\n\n他来了。我走了。\n"
    (tmp_path / "a.txt").write_text(text)
    build_store([tmp_path / "a.txt"], TOKENIZER, tmp_path / "store", BuildOptions(format="paragraphs"), workers=1)
    sentences = [["One two.", "Three four!"], ["他来了。", "我走了。"]]
    assert contents(TokenStore.open(tmp_path / "store")) == expected(sentences)
    build_store(str(tmp_path / "a.txt"), TOKENIZER, tmp_path / "lines", BuildOptions(format="lines"), workers=1)
    assert contents(TokenStore.open(tmp_path / "lines")) == expected([["One two. Three four!"], ["他来了。我走了。"]])


def test_empty_files_are_harmless_but_not_alone(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.txt").write_bytes(b"\n \n\r\n")
    (tmp_path / "text.txt").write_bytes(b"Some text.\n")
    with pytest.raises(DataError, match="no documents"):
        build_store([tmp_path / "empty.txt", tmp_path / "blank.txt"], TOKENIZER, tmp_path / "store", workers=1)
    report = build_store(sorted(tmp_path.glob("*.txt")), TOKENIZER, tmp_path / "store", workers=1)
    assert report.documents == 1
    assert report.formats["empty"] == 1
    assert TokenStore.open(tmp_path / "store").num_tokens == 2


def test_standard_input(tmp_path, monkeypatch, corpus):
    folder, _ = corpus

    def give(name):
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": open(folder / name, "rb")}))  # noqa: SIM115

    build_store([folder / "2.txt.xz"], TOKENIZER, tmp_path / "file", workers=1)
    give("2.txt.xz")
    build_store(["-"], TOKENIZER, tmp_path / "stdin", workers=1)
    sys.stdin.buffer.close()
    assert contents(TokenStore.open(tmp_path / "stdin")) == contents(TokenStore.open(tmp_path / "file"))
    with pytest.raises(DataError, match=r"standard input, which may have had other text; .* overwrite"):
        build_store(["-"], TOKENIZER, tmp_path / "stdin", workers=1)
    give("4.parquet")
    with pytest.raises(DataError, match="Parquet needs a file; standard input"):
        build_store(["-"], TOKENIZER, tmp_path / "parquet", workers=1)
    sys.stdin.buffer.close()


def test_plan_keeps_large_files_apart_and_small_ones_together(monkeypatch):
    monkeypatch.setattr(build, "SMALL_FILE", 10)
    monkeypatch.setattr(build, "MAX_PARTS", 20)

    def sizes(*files):
        parts = plan_parts([Source("-" if size == 0 else f"{i}", size, 0) for i, size in enumerate(files)])
        assert [part.index for part in parts] == list(range(len(parts)))
        return [[source.size for source in part.sources] for part in parts]

    assert sizes(100, 4, 4, 4, 4, 100, 3) == [[100], [4, 4], [4, 4], [100], [3]]
    assert sizes(4, 0, 4) == [[4], [0], [4]]
    assert len(sizes(*[15] * 1000)) <= 21  # a part of 50 files each


# --- duplicates


def test_duplicates_first_occurrence_stays(tmp_path):
    first = ["A b c.\nD e.\n", "Unique one.\n", "A  b c.\tD e.\n", "Caf\u00e9.\n"]
    second = ["Unique two.\n", "A b c.\n\nD e.\n", "A b c. D e.\n", "Cafe\u0301.\n", "a b c. d e.\n"]
    (tmp_path / "1.txt").write_text("\n".join(first))
    (tmp_path / "2.txt").write_text("\n".join(second))
    (tmp_path / "3.txt").write_text("\n".join(first))
    out = tmp_path / "store"
    report = build_store(
        sorted(tmp_path.glob("?.txt")), TOKENIZER, out, BuildOptions(format="lines", deduplicate=True), workers=1
    )
    kept = [["A b c.", "D e."], ["Unique one."], ["Caf\u00e9."], ["Unique two."], ["A b c."], ["D e."], ["a b c. d e."]]
    assert contents(TokenStore.open(out)) == expected(kept)
    assert report.duplicates == 4 + 4 + 4 - 5
    TokenStore.open(out).verify()
    assert sorted(entry.name for entry in out.iterdir()) == [
        "index",
        "manifest.json",
        *(f"part-0000{i}.arrow" for i in range(3)),
    ]


def test_deduplication_is_that_of_a_set(tmp_path):
    rng = random.Random(0)
    pool = [f"Document {i}.\n" for i in range(40)]
    drawn = [rng.choice(pool) for _ in range(300)]
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text("\n".join(drawn[100 * i : 100 * i + 100]))
    options = BuildOptions(format="lines", deduplicate=True)
    build_store(sorted(tmp_path.glob("*.txt")), TOKENIZER, tmp_path / "store", options, workers=1)
    assert contents(TokenStore.open(tmp_path / "store")) == expected([[text.strip()] for text in dict.fromkeys(drawn)])


# --- interruptions


def run_in_process(folder, out, *, prelude=""):
    """A build in a process of its own, with small pieces and two workers."""
    script = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from toy_tokenizer import WordTokenizer
from litebert.text import build, readers, store_writer
build.SMALL_FILE, readers.BLOCK, store_writer.BATCH_TOKENS = 1, 2000, 700
{prelude}
options = build.BuildOptions(deduplicate=True)
build.build_store([{str(folder)!r}], WordTokenizer(), {str(out)!r}, options, workers=2)
"""
    return subprocess.Popen([sys.executable, "-c", script], start_new_session=True)


def processes_of_session(session):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_killed_at_random_moments_gives_the_same_bytes(corpus, tmp_path):
    folder, _ = corpus
    began = time.monotonic()
    assert run_in_process(folder, tmp_path / "undisturbed").wait() == 0
    duration = time.monotonic() - began
    whole = tree(tmp_path / "undisturbed")
    unfinished = 0
    for seed in range(3):
        rng = random.Random(seed)
        out = tmp_path / f"killed{seed}"
        process = run_in_process(folder, out)
        time.sleep(rng.uniform(0.4, 0.95) * duration)
        process.kill()
        process.wait()
        if out.is_dir() and not (out / "manifest.json").exists():
            unfinished += 1
            with pytest.raises(DataError, match=r"unfinished|not a token store"):
                TokenStore.open(out)
        deadline = time.monotonic() + 20
        while processes_of_session(process.pid):
            assert time.monotonic() < deadline, "workers outlive a killed build"
            time.sleep(0.05)
        assert build_store([folder], TOKENIZER, out, BuildOptions(deduplicate=True), workers=1).documents > 0
        assert tree(out) == whole
    assert unfinished, "no build was killed while it was running"


KILL_AT_EVERY_STEP = """
import os, signal, sys
from pathlib import Path

here, base, *sources = sys.argv[1:]
sys.path.insert(0, here)
from toy_tokenizer import WordTokenizer
from litebert.text import build, readers, store_writer

build.SMALL_FILE, readers.BLOCK, store_writer.BATCH_TOKENS = 1, 2000, 700
os.fsync = lambda handle: None  # a killed process, not a power cut

def run(out, die_at=None):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    replace, calls = os.replace, 0
    def count(source, target):
        nonlocal calls
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
    os.replace = count
    build.build_store(sources, WordTokenizer(), out, build.BuildOptions(deduplicate=True), workers=1)
    os._exit(0)

def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}

assert run(f"{base}/whole") == 0
step = 1
while (status := run(f"{base}/{step}", step)) != 0:
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    assert run(f"{base}/{step}") == 0
    assert tree(f"{base}/{step}") == tree(f"{base}/whole"), step
    step += 1
print(step - 1)
"""


def test_killed_at_every_step_gives_the_same_bytes(corpus, tmp_path):
    """A rename is where the state on disk changes: die before each of them."""
    folder, _ = corpus
    arguments = [HERE, tmp_path, folder / "0.txt", folder / "1.txt.gz"]
    done = subprocess.run([sys.executable, "-c", KILL_AT_EVERY_STEP, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The plan; file, hashes and record of two parts; both again without duplicates; four indices; the manifest.
    assert int(done.stdout) == 1 + 2 * 3 + 2 + 4 + 1


def test_an_interrupted_build_goes_on_where_it_stopped(corpus, tmp_path):
    folder, _ = corpus
    out = tmp_path / "store"

    class StopError(Exception):
        pass

    def stop_in_the_fourth_file(progress):
        if progress.source.endswith("3.jsonl"):
            raise StopError

    with pytest.raises(StopError):
        build_store([folder], TOKENIZER, out, workers=1, on_progress=stop_in_the_fourth_file)
    with pytest.raises(DataError, match="unfinished store; rerun the same"):
        TokenStore.open(out)
    before = {path.name: path.stat().st_ino for path in out.glob("part-*.arrow")}
    assert len(before) == 3
    report = build_store([folder], TOKENIZER, out, workers=1)
    assert report.parts_reused == 3
    assert {name: (out / name).stat().st_ino for name in before} == before
    build_store([folder], TOKENIZER, tmp_path / "undisturbed", workers=1)
    assert tree(out) == tree(tmp_path / "undisturbed")
    again = build_store([folder], TOKENIZER, out, workers=1)
    assert again.parts_reused == again.parts == 6


@pytest.mark.parametrize("deduplicate", [False, True])
def test_a_build_goes_on_with_damaged_records(corpus, tmp_path, deduplicate):
    """A plan that cannot be read is told from the parts; a part whose record or hashes cannot is made again."""
    folder, _ = corpus
    out, options = tmp_path / "store", BuildOptions(deduplicate=deduplicate)
    build_store([folder], TOKENIZER, tmp_path / "undisturbed", options, workers=1)
    damage = {
        "plan.json": [b"", b"{", b"[]", b"{}", b'{"tokenizer": 5}', b"flip"],
        "part-00001.json": [b"", b"[" * 5000, b"{}", b'{"skipped": {}}', b"flip"],
    }
    damage |= {"part-00001.hashes": [b"x"]} if deduplicate else {}
    for name, contents in damage.items():
        for content in contents:
            shutil.rmtree(out, ignore_errors=True)
            with pytest.raises(ZeroDivisionError):
                build_store(
                    [folder], TOKENIZER, out, options, workers=1, on_progress=lambda p: 1 / ("4.parq" not in p.source)
                )
            file = out / "build" / name
            whole = file.read_bytes()
            file.write_bytes(whole.replace(b"text", b"tezt", 1) if content == b"flip" else content)
            assert file.read_bytes() != whole
            report = build_store([folder], TOKENIZER, out, options, workers=1)
            assert tree(out) == tree(tmp_path / "undisturbed")
            assert len(report.notes) == 1
            assert str(file) in report.notes[0]
            assert report.parts_reused == (4 if name == "plan.json" else 3)


def test_a_damaged_plan_without_finished_parts(corpus, tmp_path):
    folder, _ = corpus
    out = tmp_path / "store"
    (out / "build").mkdir(parents=True)
    (out / "build" / "plan.json").write_text("{")
    (out / "part-00000.arrow").write_bytes(b"whose?")
    with pytest.raises(DataError, match=r"unfinished build from unknown sources \(.*plan\.json:1: not valid JSON"):
        build_store([folder], TOKENIZER, out, workers=1)
    assert (out / "part-00000.arrow").read_bytes() == b"whose?"
    build_store([folder], TOKENIZER, out, workers=1, overwrite=True)
    build_store([folder], TOKENIZER, tmp_path / "undisturbed", workers=1)
    assert tree(out) == tree(tmp_path / "undisturbed")


def test_a_damaged_part_is_built_again(corpus, tmp_path):
    folder, _ = corpus
    out = tmp_path / "store"
    build_store([folder], TOKENIZER, tmp_path / "undisturbed", workers=1)
    with pytest.raises(ZeroDivisionError):
        build_store([folder], TOKENIZER, out, workers=1, on_progress=lambda p: 1 / ("4.parquet" not in p.source))
    part = out / "part-00001.arrow"
    part.write_bytes(part.read_bytes()[:-100])
    assert build_store([folder], TOKENIZER, out, workers=1).parts_reused == 3
    assert tree(out) == tree(tmp_path / "undisturbed")


def test_a_changed_plan_is_not_mixed_in(corpus, tmp_path):
    folder, _ = corpus
    out = tmp_path / "store"
    sources = [folder / "0.txt", folder / "1.txt.gz"]
    build_store(sources, TOKENIZER, out, workers=1)
    half = tmp_path / "half"
    with pytest.raises(ZeroDivisionError):
        build_store(sources, TOKENIZER, half, workers=1, on_progress=lambda p: 1 / ("1.txt.gz" not in p.source))
    other = WordTokenizer()
    other.fingerprint = "0" * 64

    def refused(message, paths=sources, tokenizer=TOKENIZER, options=None):
        for place in (out, half):
            before = tree(place)
            with pytest.raises(DataError, match=message):
                build_store(paths, tokenizer, place, options, workers=1)
            assert tree(place) == before

    refused(r"another tokenizer \(fingerprint ffff.*overwrite", tokenizer=other)
    refused(r"other options \(language: 'auto'\).*overwrite", options=BuildOptions(language="en"))
    refused(r"other sources \(.*2\.txt\.xz is new\).*overwrite", paths=[*sources, folder / "2.txt.xz"])
    refused(r"other sources \(.*1\.txt\.gz is gone\).*overwrite", paths=sources[:1])
    refused(r"the same sources in another order.*overwrite", paths=sources[::-1])
    (folder / "0.txt").write_text("Something else.\n")
    refused(r"other sources \(.*0\.txt has changed\).*overwrite")
    for place in (out, half):
        build_store(sources, other, place, BuildOptions(language="en"), workers=1, overwrite=True)
        assert TokenStore.open(place).fingerprint == other.fingerprint
    assert tree(out) == tree(half)


def test_a_source_that_changes_while_it_is_read(corpus, tmp_path):
    folder, _ = corpus

    def touch(progress):
        os.utime(folder / "0.txt", ns=(1, 1))

    with pytest.raises(DataError, match=r"0\.txt: changed while it was being read"):
        build_store([folder / "0.txt"], TOKENIZER, tmp_path / "store", workers=1, on_progress=touch)


def test_two_builds_do_not_share_a_folder(corpus, tmp_path):
    folder, _ = corpus

    def build_again(progress):
        with pytest.raises(DataError, match="another build is writing this store"):
            build_store([folder], TOKENIZER, tmp_path / "store", workers=1)

    build_store([folder], TOKENIZER, tmp_path / "store", workers=1, on_progress=build_again)


def test_nobody_elses_folder_is_touched(corpus, tmp_path):
    folder, _ = corpus
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"not a token store, and not empty \(thesis\.tex"):
            build_store([folder], TOKENIZER, tmp_path / "home", workers=1, overwrite=overwrite)
    with pytest.raises(DataError, match="is inside the source folder"):
        build_store([folder], TOKENIZER, folder / "store", workers=1)
    with pytest.raises(DataError, match="is a file; a store is a folder"):
        build_store([folder], TOKENIZER, tmp_path / "home" / "thesis.tex", workers=1)
    assert tree(tmp_path / "home") == {"thesis.tex": b"years of work"}


# --- bad input


@pytest.fixture
def bad_corpus(tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"Good one.\n\nBad \xff one.\n\nNul \0 one.\n\nGood two.\n")
    (folder / "b.jsonl").write_text('{"text": "Good three."}\n{"txt": "?"}\n{"text": \n{"text": "Good four."}\n')
    whole = gzip.compress("".join(f"Line {i * 7919 % 9973}.\n\n" for i in range(30_000)).encode())
    (folder / "c.txt.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "d.parquet").write_bytes(b"PAR1 and then nothing")
    (folder / "e.txt").write_text("Good five.\n")
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_input_stops_or_is_counted(bad_corpus, tmp_path, workers):
    out = tmp_path / "store"
    with pytest.raises(DataError, match=r"a\.txt:3: not valid UTF-8.*on_error='skip'"):
        build_store([bad_corpus], TOKENIZER, out, workers=workers)
    report = build_store([bad_corpus], TOKENIZER, out, workers=workers, on_error="skip")
    assert report.skipped == {"NUL byte": 1, "bad JSON": 1, "damaged file": 2, "invalid UTF-8": 1, "no text": 1}
    assert len(report.problems) == 6
    assert any("c.txt.gz:" in problem and "truncated" in problem for problem in report.problems)
    found = contents(TokenStore.open(out))
    good = expected([["Good one."], ["Good two."], ["Good three."], ["Good four."], ["Good five."]])
    assert found[:4] + found[-1:] == good
    assert len(found) > 1000  # what could be read of the archive
    with pytest.raises(DataError, match=r"on_error='skip' \(1 NUL byte, .*\).*overwrite"):
        build_store([bad_corpus], TOKENIZER, out, workers=workers)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("b.jsonl", r"b\.jsonl:2: no field 'text'"),
        ("c.txt.gz", r"c\.txt\.gz:\d+: .*truncated"),
        ("d.parquet", "not Parquet"),
    ],
)
def test_each_bad_file_is_named(bad_corpus, tmp_path, name, message):
    with pytest.raises(DataError, match=message):
        build_store([bad_corpus / name], TOKENIZER, tmp_path / "store", workers=1)
    with pytest.raises(DataError, match=r"unfinished"):
        TokenStore.open(tmp_path / "store")


def test_a_build_that_ended_at_once_is_in_nobodys_way(bad_corpus, tmp_path):
    out = tmp_path / "store"
    with pytest.raises(DataError, match="no field 'text'"):
        build_store([bad_corpus / "b.jsonl"], TOKENIZER, out, workers=1)
    assert (
        build_store([bad_corpus / "e.txt"], TOKENIZER, out, workers=1).documents == 1
    )  # another file, with no --overwrite
    other = tmp_path / "other"
    with pytest.raises(DataError, match="no field 'text'"):
        build_store([bad_corpus / "e.txt", bad_corpus / "b.jsonl"], TOKENIZER, other, workers=1)
    with pytest.raises(
        DataError, match=r"contains an unfinished build from other sources .*set overwrite"
    ):  # a part is done
        build_store([bad_corpus / "b.jsonl"], TOKENIZER, other, workers=1)


def test_stopping_at_an_error_keeps_the_parts_before_it(bad_corpus, tmp_path, corpus):
    folder, _ = corpus
    sources = [folder / "0.txt", folder / "3.jsonl", bad_corpus / "d.parquet"]
    with pytest.raises(DataError, match="not Parquet"):
        build_store(sources, TOKENIZER, tmp_path / "store", workers=2)
    report = build_store(sources, TOKENIZER, tmp_path / "store", workers=2, on_error="skip")
    assert report.parts_reused == 2
    assert report.skipped == {"damaged file": 1}


def test_a_line_of_100_megabytes_in_little_memory(tmp_path):
    with open(tmp_path / "long.txt", "wb") as file:
        for _ in range(100):
            file.write(b"word " * 200_000)
    script = f"""
import re, sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from toy_tokenizer import OneTokenizer
from litebert.text.build import build_store
report = build_store([{str(tmp_path / "long.txt")!r}], OneTokenizer(), {str(tmp_path / "store")!r}, workers=1)
# Not ru_maxrss: that begins with the size of the process that started this one.
print(report.text_bytes, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    text_bytes, megabytes = map(int, done.stdout.split())
    assert text_bytes == 100_000_000
    assert megabytes < 250
    opened = TokenStore.open(tmp_path / "store")
    assert opened.num_documents == 12  # of at most 8 MiB each
    assert opened.num_tokens == opened.num_sentences >= 100_000_000 // readers.MAX_LINE


def test_a_killed_worker_is_told(corpus, tmp_path):
    folder, _ = corpus
    out = tmp_path / "store"

    with pytest.raises(LitebertError, match=r"a worker process died.*rerun the same build"):
        build_store([folder], DyingTokenizer(), out, workers=2)
    assert multiprocessing.active_children() == []
    with pytest.raises(DataError, match="unfinished"):
        TokenStore.open(out)
    build_store([folder], TOKENIZER, out, workers=1)
    build_store([folder], TOKENIZER, tmp_path / "undisturbed", workers=1)
    assert tree(out) == tree(tmp_path / "undisturbed")


def test_ctrl_c_is_for_the_parent_alone(corpus, tmp_path):
    """Workers that are still importing would each print a traceback."""
    folder, _ = corpus
    build_store([folder], UninterruptedTokenizer(), tmp_path / "store", workers=2)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("room", [500, 8_000, 12_000])
def test_a_full_disk_is_told_and_survived(corpus, tmp_path, room):
    """A limit on file sizes fails like a full disk does: in the middle of a write."""
    folder, _ = corpus
    options = BuildOptions(deduplicate=True)
    build_store([folder], TOKENIZER, tmp_path / "undisturbed", options, workers=1)
    largest = max(len(data) for data in tree(tmp_path / "undisturbed").values())
    assert room < largest
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(DataError, match=r"store: cannot write: File too large.*rerun the same build"):
            build_store([folder], TOKENIZER, tmp_path / "store", options, workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(DataError, match=r"unfinished|not a token store"):
        TokenStore.open(tmp_path / "store")
    assert not list((tmp_path / "store").rglob(".*.tmp"))
    build_store([folder], TOKENIZER, tmp_path / "store", options, workers=1)
    assert tree(tmp_path / "store") == tree(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    "options",
    [{"workers": -1}, {"on_error": "ignore"}, {"engine": "spark"}, {"options": BuildOptions(format="xml")}],
)
def test_impossible_arguments(corpus, tmp_path, options):
    folder, _ = corpus
    with pytest.raises(InputError):
        build_store([folder], TOKENIZER, tmp_path / "store", **options)
    with pytest.raises(InputError, match="sources: expected files"):
        build_store([], TOKENIZER, tmp_path / "store")
    with pytest.raises(InputError, match="klingon"):
        build_store([folder], TOKENIZER, tmp_path / "store", BuildOptions(language="klingon"))
    assert not (tmp_path / "store").exists()


# --- shards and URLs


@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_three_shards_in_any_order_are_one_build(corpus, tmp_path, order, deduplicate):
    folder, _ = corpus
    options = BuildOptions(deduplicate=deduplicate)
    whole = build_store([folder], TOKENIZER, tmp_path / "whole", options, workers=1)
    left = {1, 2, 3}
    for number in order:
        report = build_store([folder], TOKENIZER, tmp_path / "store", options, workers=1, shard=(number, 3))
        left.remove(number)
        assert report.missing == [f"{n}/3" for n in sorted(left)]
        if left:
            with pytest.raises(DataError, match="unfinished"):
                TokenStore.open(tmp_path / "store")
    assert (report.documents, report.tokens, report.parts) == (whole.documents, whole.tokens, whole.parts)
    assert tree(tmp_path / "store") == tree(tmp_path / "whole")
    again = build_store([folder], TOKENIZER, tmp_path / "store", options, workers=1, shard=(2, 3))
    assert again.parts_reused == again.parts == 6
    assert tree(tmp_path / "store") == tree(tmp_path / "whole")


def test_shards_at_once_are_one_build(corpus, tmp_path):
    """Three processes start at the same moment; one of them, whichever is last, completes the store."""
    folder, _ = corpus
    build_store([folder], TOKENIZER, tmp_path / "whole", workers=1)
    script = (
        "import sys; from toy_tokenizer import WordTokenizer; from litebert.text import build, readers, store_writer;"
        "build.SMALL_FILE, readers.BLOCK, store_writer.BATCH_TOKENS = 1, 2000, 700;"
        "report = build.build_store([sys.argv[1]], WordTokenizer(), sys.argv[2], workers=1,"
        " shard=build.parse_shard(sys.argv[3])); print(len(report.missing))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder), str(tmp_path / "store"), f"{number}/3"],
            env=environment,
            stdout=subprocess.PIPE,
        )
        for number in (1, 2, 3)
    ]
    assert 0 in [int(job.communicate()[0]) for job in jobs]
    assert tree(tmp_path / "store") == tree(tmp_path / "whole")


def test_a_missing_or_damaged_shard_is_named_and_a_plain_build_finishes(corpus, tmp_path):
    folder, _ = corpus
    out = tmp_path / "store"
    build_store([folder], TOKENIZER, tmp_path / "whole", workers=1)
    shares = build.share_out(plan_parts(build.find_sources([folder])), 4)
    for number in (1, 2):
        report = build_store([folder], TOKENIZER, out, workers=1, shard=(number, 4))
    assert report.missing == ["3/4", "4/4"]
    assert report.parts == len(shares[1])
    build_store([folder], TOKENIZER, out, workers=1, shard=(3, 4))
    (out / store_writer.part_name(shares[0][0].index)).write_bytes(b"damaged")
    report = build_store([folder], TOKENIZER, out, workers=1, shard=(4, 4))
    assert report.missing == ["1/4"]
    assert any("damaged" in note for note in report.notes)
    report = build_store([folder], TOKENIZER, out, workers=1)
    assert (report.missing, report.parts_reused) == ([], 5)
    assert tree(out) == tree(tmp_path / "whole")


def test_more_shards_than_files(corpus, tmp_path):
    folder, _ = corpus
    build_store([folder / "0.txt"], TOKENIZER, tmp_path / "whole", workers=1)
    shares = build.share_out(plan_parts(build.find_sources([folder / "0.txt"])), 3)
    empty = next(number for number, share in enumerate(shares, 1) if not share)
    report = build_store([folder / "0.txt"], TOKENIZER, tmp_path / "store", workers=1, shard=(empty, 3))
    assert (report.documents, len(report.missing)) == (0, 1)
    build_store(
        [folder / "0.txt"], TOKENIZER, tmp_path / "store", workers=1, shard=build.parse_shard(report.missing[0])
    )
    assert tree(tmp_path / "store") == tree(tmp_path / "whole")


def test_shards_are_of_about_equal_size():
    sizes = [900, 100, 100, 100, 100, 300, 200, 400, 0, 0]
    parts = plan_parts([Source(str(i), size, 0) for i, size in enumerate(sizes)])
    shares = build.share_out(parts, 3)
    assert sorted(part.index for share in shares for part in share) == list(range(len(parts)))
    totals = [sum(part.size for part in share) for share in shares]
    assert max(totals) == 900
    assert min(totals) >= 600


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard": (0, 3)}, "shard must be between 1/3 and 3/3, got 0/3"),
        ({"shard": (4, 3)}, "shard must be between 1/3 and 3/3, got 4/3"),
        ({"shard": (1, 2), "overwrite": True}, "overwrite: not with shard"),
        ({"shard": (1, 2), "sources": ["-"]}, "standard input does not support shards"),
    ],
)
def test_impossible_shards(corpus, tmp_path, options, message):
    folder, _ = corpus
    with pytest.raises(InputError, match=message):
        build_store(**{"sources": [folder], "tokenizer": TOKENIZER, "out": tmp_path / "store", **options})
    with pytest.raises(InputError, match="expected i/n, for example 2/8, got '2 of 8'"):
        build.parse_shard("2 of 8")


def test_a_shard_and_a_whole_build_exclude_each_other(corpus, tmp_path):
    folder, _ = corpus

    def refuse(progress):
        with pytest.raises(DataError, match="another build is writing this store"):
            build_store([folder], TOKENIZER, tmp_path / "store", workers=1)

    build_store([folder], TOKENIZER, tmp_path / "store", workers=1, shard=(1, 2), on_progress=refuse)


def test_urls_give_the_same_tokens(corpus, tmp_path):
    """Through fsspec's file system in memory: files, a folder and a pattern, compressed, JSON lines and Parquet."""
    import fsspec

    folder, _ = corpus
    memory = fsspec.filesystem("memory")
    for file in folder.iterdir():
        memory.pipe(f"/corpus/{file.name}", file.read_bytes())
    local = build_store([folder], TOKENIZER, tmp_path / "local", workers=1)
    names = sorted(file.name for file in folder.iterdir())
    for number, urls in enumerate(
        (["memory://corpus"], [f"memory://corpus/{name}" for name in names], ["memory://corp*/*"])
    ):
        store = tmp_path / f"remote-{number}"
        report = build_store(urls, TOKENIZER, store, workers=1)
        assert (report.documents, report.formats) == (local.documents, local.formats)
        opened = TokenStore.open(store)
        assert opened.content_sum == TokenStore.open(tmp_path / "local").content_sum
        assert all(source["path"].startswith("memory://") for source in opened.manifest["sources"])
        assert build_store(urls, TOKENIZER, store, workers=1).parts_reused == 6
    memory.pipe("/corpus/0.txt", b"Something else.\n")
    with pytest.raises(DataError, match=r"other sources \(memory:.*0\.txt has changed\)"):
        build_store(["memory://corpus"], TOKENIZER, tmp_path / "remote-0", workers=1)
    with pytest.raises(DataError, match=r"memory://nowhere/x\.txt: no such file or folder"):
        build_store(["memory://nowhere/x.txt"], TOKENIZER, tmp_path / "none", workers=1)
    with pytest.raises(DataError, match=r"carrier-pigeon://x/y: cannot read: Protocol not known"):
        build_store(["carrier-pigeon://x/y"], TOKENIZER, tmp_path / "none", workers=1)
    memory.rm("/corpus", recursive=True)


# --- Ray


def test_ray_gives_the_same_bytes(corpus, tmp_path, monkeypatch):
    import ray.data  # slow to import, and used here alone

    monkeypatch.undo()  # small blocks would not reach Ray's processes
    monkeypatch.setattr(build, "SMALL_FILE", 1)
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # for the toy tokenizer
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder, _ = corpus
    options = BuildOptions(deduplicate=True)
    build_store([folder], TOKENIZER, tmp_path / "local", options, workers=1)
    local = TokenStore.open(tmp_path / "local")
    read = []

    def read_with_ray(progress):
        """Ray is slow to start, so while it runs, have it read a store too."""
        if progress.done_bytes == progress.total_bytes:
            read.append(ray.data.from_arrow(local.table()).take_all())

    build_store([folder], TOKENIZER, tmp_path / "ray", options, workers=1, engine="ray", on_progress=read_with_ray)
    assert tree(tmp_path / "ray") == tree(tmp_path / "local")
    assert [[[*map(int, s)] for s in row["sentences"]] for row in read[0]] == contents(local)
    assert not ray.is_initialized()


def test_errors_come_back_from_ray(bad_corpus, corpus, tmp_path, monkeypatch):
    """Without a cluster: parts finish in any order, the first bad one is told, the good ones are kept."""
    folder, _ = corpus

    def in_any_order(function, parts, workers):
        sent = pickle.loads(pickle.dumps((function, parts)))
        return ((index, sent[0](sent[1][index])) for index in reversed(range(len(parts))))

    monkeypatch.setattr(build, "map_on_ray", in_any_order)
    sources = [folder / "0.txt", bad_corpus, folder / "3.jsonl"]
    with pytest.raises(DataError, match=r"a\.txt:3: not valid UTF-8"):
        build_store(sources, TOKENIZER, tmp_path / "store", engine="ray")
    report = build_store(sources, TOKENIZER, tmp_path / "store", engine="ray", on_error="skip")
    assert report.parts_reused == 2  # the two of the good corpus
    build_store(sources, TOKENIZER, tmp_path / "local", workers=1, on_error="skip")
    assert tree(tmp_path / "store") == tree(tmp_path / "local")
    with pytest.raises(DataError, match="a cluster cannot read standard input"):
        build_store(["-"], TOKENIZER, tmp_path / "stdin", engine="ray")


def test_ray_is_optional(corpus, tmp_path, monkeypatch):
    folder, _ = corpus
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install \"litebert\[ray\]\""):
        build_store([folder], TOKENIZER, tmp_path / "store", engine="ray")
