"""What surrounds a CUDA graph: shapes in steps, and input in fixed places. The recording itself needs a GPU
(benchmarks/graph_check.py holds its numbers to the CPU's)."""

from __future__ import annotations

import numpy as np
import torch
from small_models import packed, small_model

from litebert.predict.fused import Encoded, FusedEncoder
from litebert.predict.graphs import Graph, GraphedEncoder, shape_of
from litebert.predict.table import Table, lay_out


def test_graphs_come_in_steps():
    assert shape_of(100, 3, 40) == (112, 4, 64)
    assert shape_of(128, 1, 128) == (128, 1, 128)
    assert shape_of(4096, 32, 128) == (4096, 64, 128)
    assert shape_of(4097, 300, 512) == (4608, 1024, 512)
    assert shape_of(8192, 16, 512) == (8192, 16, 512)
    assert shape_of(8193, 16, 512) is None
    assert shape_of(16, 1, 513) is None


class Replayed(GraphedEncoder):
    """A recording that computes on a CPU, and leaves nonsense where no token was."""

    recorded = 0

    def _record(self, shape):
        self.recorded += 1
        tokens, sequences, length = shape
        table = Table.empty(*shape, torch.device("cpu"))
        output = Encoded(
            torch.zeros(tokens, self.config.hidden_size), *torch.zeros(2, sequences, self.config.hidden_size)
        )

        class Recording:
            def replay(recording):
                used = int(table.starts[-1])
                assert (table.starts.diff() >= 0).all()
                assert int(table.starts.diff().max()) <= length
                for place in output:
                    place.fill_(torch.nan)
                inputs = (table.ids[:used], table.segments[:used], table.positions[:used], table.starts, length)
                found = FusedEncoder.encode(self, *inputs)
                output.hidden[:used] = found.hidden
                real = table.starts.diff() > 0
                output.first[real], output.pooled[real] = found.first[real], found.pooled[real]

        return Graph(Recording(), table, output)


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
    assert graphed.recorded == 3  # [9, 5, 9] and [7, 12] share a shape


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
    assert graphed.recorded == 1
