"""What surrounds a CUDA graph: shapes in steps, and input in fixed places. The recording itself needs a GPU
(benchmarks/predict_speed.py compares its numbers)."""

from __future__ import annotations

import torch
from small_models import packed, small_model

from litebert.predict.fused import FusedEncoder
from litebert.predict.graphs import Graph, GraphedEncoder, shape_of


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

    def _record(self, tokens, sequences, length):
        self.recorded += 1
        ids, segments, positions = (torch.zeros(tokens, dtype=torch.int64) for _ in range(3))
        starts = torch.zeros(sequences + 1, dtype=torch.int32)
        hidden = torch.zeros(tokens, self.config.hidden_size)

        class Recording:
            def replay(recording):
                used = int(starts[-1])
                assert (starts.diff() >= 0).all()
                assert int(starts.diff().max()) <= length
                hidden.fill_(torch.nan)
                inputs = (ids[:used], segments[:used], positions[:used], starts, length)
                hidden[:used] = FusedEncoder.encode(self, *inputs)

        return Graph(Recording(), ids, segments, positions, starts, hidden)


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
        few = graphed(**batch, positions=torch.tensor([2]), only_asked=True)
        torch.testing.assert_close(few.hidden, fused(**batch).hidden[[2]], rtol=1e-4, atol=1e-5)
    assert graphed.recorded == 3  # [9, 5, 9] and [7, 12] share a shape
