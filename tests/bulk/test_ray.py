"""`--engine ray`: the same bytes as on this machine, also when an actor dies."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import embed, parts, texts, write

from litebert.bulk import ray_engine
from litebert.bulk.part import Work
from litebert.errors import DataError, LitebertError
from litebert.text.sources import Source, find_sources


def test_ray_writes_the_same_bytes_though_an_actor_dies(model, tmp_path, monkeypatch):
    class DyingOnce(ray_engine.SpanScorer):
        """An actor that is killed, as by a node's end, after it has written a part."""

        def _score(self, span):
            write = self.folder.write

            def write_and_die(name, data):
                write(name, data)
                mark = Path(self.folder.name).with_suffix(".died")
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), 9)

            self.folder.write = write_and_die
            return super()._score(span)

    pq.write_table(pa.table({"body": [*texts(45), ""]}), tmp_path / "a.parquet", row_group_size=20)
    (tmp_path / "b.jsonl").write_text("".join(f'{{"body": "{text}"}}\n' for text in texts(23)))
    sources = [tmp_path / "a.parquet", tmp_path / "b.jsonl"]
    embed(model, sources, tmp_path / "local")
    monkeypatch.setattr("builtins.print", print)  # Ray Data's progress bars replace it for good
    monkeypatch.setattr(ray_engine, "SPAN", 2)
    monkeypatch.setattr(ray_engine, "SpanScorer", DyingOnce)
    summary = embed(model, sources, tmp_path / "ray", engine="ray", workers=2)
    assert (tmp_path / "ray.died").exists()
    assert (summary.rows, summary.errors, summary.parts) == (69, 1, 8)
    assert parts(tmp_path / "ray") == parts(tmp_path / "local")


def test_a_mistake_in_the_data_is_an_answer_and_no_failure(model, tmp_path):
    """Ray would start an actor that fails again and again."""
    (tmp_path / "bad.csv").write_text("text\nanna\n")
    embed(model, tmp_path / "bad.csv", tmp_path / "out", columns={"text": "text"})
    work = Work(str(model("pretraining")), "embed", {"text": ("body",)}, {}, None, False, 100, "torch", "cpu", 1, 8192)
    (source,) = find_sources([tmp_path / "bad.csv"])
    span = ray_engine.Span(1, source, 0, None, 10, "utf-8")
    actor = ray_engine.SpanScorer(work, str(tmp_path / "out"), os.getcwd())
    ((_, _, error),) = pickle.loads(actor({"span": [pickle.dumps(span)]})["scored"][0])
    assert isinstance(error, DataError)
    assert "bad.csv: no column 'body'" in str(error)


def test_a_full_disk_is_an_answer_and_no_traceback(model, tmp_path):
    """With its number and file, which the command's one sentence is made of."""
    source = write(tmp_path / "a.parquet", texts(35))
    work = Work(str(model("pretraining")), "embed", {"text": ("body",)}, {}, None, False, 100, "torch", "cpu", 1, 8192)
    actor = ray_engine.SpanScorer(work, str(tmp_path / "out"), os.getcwd())
    (tmp_path / "out").mkdir()
    write_file = actor.folder.write

    def full(name, data):
        if name == "part-00000-000002.parquet":
            raise OSError(errno.ENOSPC, "No space left on device", name)
        write_file(name, data)

    actor.folder.write = full
    (span,) = ray_engine.cut_spans([(0, find_sources([source])[0])], 10, "utf-8", {})
    *scored, (_, _, error) = pickle.loads(actor({"span": [pickle.dumps(span)]})["scored"][0])
    assert [part.number for _, part, _ in scored] == [0, 1]
    assert sorted(parts(tmp_path / "out")) == ["part-00000-000000.parquet", "part-00000-000001.parquet"]
    assert (error.errno, error.filename) == (errno.ENOSPC, "part-00000-000002.parquet")


def test_an_actor_that_fails_says_why(model, tmp_path, monkeypatch):
    """Of Ray's traceback the line that says what happened."""

    class Failing(ray_engine.SpanScorer):
        def _score(self, span):
            raise RuntimeError("the device is gone\nand more")

    source = write(tmp_path / "a.parquet", texts(15))
    monkeypatch.setattr("builtins.print", print)  # Ray Data's progress bars replace it for good
    monkeypatch.setattr(ray_engine, "SpanScorer", Failing)
    with pytest.raises(LitebertError, match=r"^Ray: RuntimeError: the device is gone\. Finished parts are kept"):
        embed(model, source, tmp_path / "out", engine="ray", workers=1)


def test_a_cluster_that_is_not_there_is_told(model, tmp_path, monkeypatch):
    source = write(tmp_path / "a.parquet", texts(15))
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(LitebertError, match=r"^Ray: no cluster at RAY_ADDRESS \(nonsense\): Invalid address format"):
        embed(model, source, tmp_path / "out", engine="ray", workers=1)


def test_stretches_leave_out_what_is_done(tmp_path):
    pq.write_table(pa.table({"body": texts(95)}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("body\n" + "anna\n" * 50)
    a, b = find_sources([tmp_path / "a.parquet", tmp_path / "b.csv"])
    assert isinstance(a, Source)

    def spans(done):
        cut = ray_engine.cut_spans([(0, a), (1, b)], 2, "utf-8", done)
        return [(span.index, span.first, span.stop) for span in cut]

    assert spans({}) == [(0, 0, 16), (0, 16, 32), (0, 32, 48), (1, 0, None)]
    assert spans({0: set(range(16, 32))}) == [(0, 0, 16), (0, 32, 48), (1, 0, None)]
