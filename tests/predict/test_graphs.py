"""What surrounds a CUDA graph: shapes in steps, and input in fixed places. The recording itself needs a GPU
(benchmarks/graph_check.py holds its numbers to the CPU's)."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from small_models import packed, small_config, small_model

from litebert.predict.fused import Encoded, FusedEncoder, lay_out
from litebert.predict.graphs import Graph, GraphedEncoder, sample_table, shape_of


def test_graphs_come_in_steps():
    assert shape_of(100, 3, 40) == (112, 4, 64)
    assert shape_of(128, 1, 128) == (128, 1, 128)
    assert shape_of(4096, 32, 128) == (4096, 32, 128)
    assert shape_of(4097, 300, 512) == (4608, 1024, 512)
    assert shape_of(8192, 16, 512) == (8192, 16, 512)
    assert shape_of(8193, 16, 512) is None
    assert shape_of(16, 1, 513) is None


class Replayed(GraphedEncoder):
    """Recordings that compute on a CPU, and leave nonsense where no token was."""

    def __init__(self, encoder):
        super().__init__(encoder)
        self.captured, self.replays = [], 0

    def _capture(self, run, table):
        sample, encoder = run(), self
        output = Encoded(*(torch.zeros_like(place) for place in sample))

        class Recording:
            def replay(recording):
                encoder.replays += 1
                assert (table.starts.diff() >= 0).all()
                assert int(table.starts.diff().max()) <= table.longest
                found, real = run(), table.starts.diff() > 0
                for place in output:
                    place.fill_(torch.nan)
                output.hidden[: table.starts[-1]] = found.hidden[: table.starts[-1]]
                output.first[real], output.pooled[real] = found.first[real], found.pooled[real]

        self.captured.append(Graph(Recording(), table, output))
        return self.captured[-1]

    def states(self, ids, segments, positions, starts, max_length, rows=None):
        """As on a GPU, tokens of no sequence are computed too; attention on a CPU takes none of them."""
        used = int(starts[-1])
        hidden = super().states(ids[:used], segments[:used], positions[:used], starts, max_length, rows)
        return hidden if rows is not None else torch.nn.functional.pad(hidden, (0, 0, 0, len(ids) - used))


@torch.inference_mode()
def test_batches_of_any_shape_through_recorded_ones():
    plain = small_model("encoder").encoder
    fused, graphed = FusedEncoder(small_model("encoder").encoder), Replayed(small_model("encoder").encoder)
    generator = torch.Generator().manual_seed(2)
    for lengths in ([9, 5, 9], [20], [3, 3, 2, 17, 1], [7, 12]):
        batch = packed(lengths, generator)
        output, expected = graphed(**batch), plain(**batch)
        torch.testing.assert_close(output.hidden, expected.hidden, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(output.pooled, expected.pooled, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(graphed.first, output.hidden[batch["starts"][:-1]])
        few = graphed(**batch, positions=torch.tensor([2]), only_asked=True)
        torch.testing.assert_close(few.hidden, fused(**batch).hidden[[2]], rtol=1e-4, atol=1e-5)
    assert len(graphed.captured) == 3  # [9, 5, 9] and [7, 12] share a shape


@torch.inference_mode()
def test_a_table_is_laid_into_the_recording_itself():
    fused, graphed = FusedEncoder(small_model("encoder").encoder), Replayed(small_model("encoder").encoder)
    rng = np.random.default_rng(0)
    for lengths in ([9, 5, 9], [7, 12], [30, 31, 32] * 3 + [48] * 200):  # the last is too large for any recording
        ids = [rng.integers(5, 100, length) for length in lengths]
        segments = [rng.integers(0, 2, length) for length in lengths]
        total, count, longest = sum(lengths), len(lengths), max(lengths)
        table = lay_out(ids, segments, graphed.room(total, count, longest))
        taken = graphed.take(table)
        recorded = shape_of(total, count, longest) is not None
        assert (taken.whole.data_ptr() != table.whole.data_ptr()) == recorded
        assert table.room == ((32, 4) if recorded else (total, count))
        found = graphed(**taken.inputs())
        expected = fused(**lay_out(ids, segments, (total, count)).inputs())
        torch.testing.assert_close(found.hidden, expected.hidden, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.pooled, expected.pooled, rtol=1e-4, atol=1e-5)
    assert len(graphed.captured) == 1


@torch.inference_mode()
def test_a_pass_begins_when_its_table_is_taken():
    fused, graphed = FusedEncoder(small_model("encoder").encoder), Replayed(small_model("encoder").encoder)
    rng = np.random.default_rng(0)
    tables = []
    for lengths in ([9, 5, 9], [7, 12]):
        ids = [rng.integers(5, 100, length) for length in lengths]
        tables.append(lay_out(ids, [np.zeros_like(row) for row in ids], graphed.room(sum(lengths), len(ids), 12)))
    first, second = (fused(**table.inputs()).hidden for table in tables)
    taken = graphed.take(tables[0])
    assert graphed.replays == 1
    for replays in (1, 2):  # asked for again, it runs again
        torch.testing.assert_close(graphed(**taken.inputs()).hidden, first, rtol=1e-4, atol=1e-5)
        assert graphed.replays == replays
    # One that was never asked for is not taken for the next.
    graphed.take(tables[0])
    torch.testing.assert_close(graphed(**tables[1].inputs()).hidden, second, rtol=1e-4, atol=1e-5)
    taken = graphed.take(tables[1])
    torch.testing.assert_close(graphed(**taken.inputs()).hidden, second, rtol=1e-4, atol=1e-5)
    assert graphed.replays == 5


def test_what_is_recorded_with_is_a_batch_of_that_shape():
    config = small_config()  # 48 positions
    for shape in ((16, 1, 64), (128, 1, 128), (128, 4, 64), (1024, 64, 512), (80, 16, 64)):
        table = sample_table(shape, config)
        lengths = table.starts.diff()
        assert table.room == shape[:2]
        assert table.longest == shape[2]
        assert int(lengths.sum()) == min(shape[0], shape[1] * 48)
        assert int(lengths.max()) <= min(shape[2], 48)
        assert int(table.positions.max()) < 48
        assert int(table.ids.max()) < config.vocab_size


@torch.inference_mode()
def test_where_triton_does_not_work_its_kernels_are_left():
    class Fails:
        def embed_norm(self, *arguments):
            raise ValueError("Python.h: No such file or directory")

    encoder = small_model("encoder").encoder
    graphed = Replayed(small_model("encoder").encoder)
    graphed._kernels = Fails()
    batch = packed([9, 5, 9], torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="no Triton kernels, so slower: Python.h"):
        found = graphed(**batch)
    torch.testing.assert_close(found.hidden, encoder(**batch).hidden, rtol=1e-4, atol=1e-5)
    assert len(graphed.captured) == 1
    assert graphed._kernels is None


class PretendedCuda:
    """Streams and graphs by name, and what happened to them."""

    def __init__(self, monkeypatch):
        self.current, self.recorded, self.made, self.left = "main", [], 0, []
        cuda = "litebert.predict.graphs.torch.cuda."
        for name, stand_in in {
            "current_stream": lambda device: self,
            "Stream": self.new_stream,
            "stream": self.on,
            "graph_pool_handle": lambda: (0, len(self.recorded) + 1),
            "CUDAGraph": object,
            "graph": self.record,
        }.items():
            monkeypatch.setattr(cuda + name, stand_in)
        monkeypatch.setattr("litebert.predict.graphs.leave_recording", self.left.append)

    def wait_stream(self, stream):
        """As one of torch's streams."""

    def new_stream(self, device):
        self.made += 1
        stream = PretendedCuda.__new__(PretendedCuda)
        stream.name = f"stream {self.made}"
        return stream

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def record(self, graph, pool, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        self.recorded.append((pool, stream.name))
        self.current = "recording"
        yield  # one that fails never comes back, as torch's own
        self.current = "main"


@torch.inference_mode()
def test_recordings_share_stream_and_memory_until_one_fails(monkeypatch):
    cuda = PretendedCuda(monkeypatch)
    graphed = GraphedEncoder(small_model("encoder").encoder)
    table = sample_table((16, 1, 64), small_config())
    ran = []
    for _ in range(2):
        graphed._capture(lambda: ran.append(cuda.current), table)
    assert ran == ["stream 1"] * 3 + ["recording"] + ["stream 3"] * 3 + ["recording"]
    assert cuda.recorded == [((0, 1), "stream 2")] * 2
    assert not cuda.left

    def fails():
        if cuda.current == "recording":
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        graphed._capture(fails, table)
    assert cuda.left == [cuda]
    cuda.current = "main"
    graphed._capture(lambda: ran.append(cuda.current), table)
    assert cuda.recorded[-1] == ((0, 4), "stream 2")  # to torch, the old memory is still in use
