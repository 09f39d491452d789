"""A batch as one array: what stands where, with places to spare and without."""

from __future__ import annotations

import numpy as np
import torch

from litebert.predict.table import lay_out

IDS = [np.array([2, 7, 3]), np.array([2, 3])]
SEGMENTS = [np.array([0, 0, 1], np.int8), np.array([0, 1], np.int8)]


def test_what_stands_where():
    for room in ((5, 2), (8, 4)):
        table = lay_out(IDS, SEGMENTS, room)
        assert (table.used, table.longest, table.whole.dtype) == ((5, 2), 3, torch.int32)
        spare = [0] * (room[0] - 5)
        assert table.ids.tolist() == [2, 7, 3, 2, 3, *spare]
        assert table.segments.tolist() == [0, 0, 1, 0, 1, *spare]
        assert table.positions.tolist() == [0, 1, 2, 0, 1, *spare]
        assert table.starts.tolist() == [0, 3, 5, *[5] * (room[1] - 2)]
        inputs = table.inputs()
        assert inputs.pop("max_length") == 3
        assert {name: tensor.tolist() for name, tensor in inputs.items()} == {
            "input_ids": [2, 7, 3, 2, 3],
            "segment_ids": [0, 0, 1, 0, 1],
            "position_ids": [0, 1, 2, 0, 1],
            "starts": [0, 3, 5],
        }
        assert all(tensor.data_ptr() >= table.whole.data_ptr() for tensor in inputs.values())  # views, no copies
