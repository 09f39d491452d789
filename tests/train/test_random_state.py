"""Seeds decide every generator."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from litebert.train.random_state import seed_everything

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def draw() -> list[float]:
    values = [random.random(), random.gauss(0, 1), np.random.random(), np.random.standard_normal()]  # noqa: NPY002
    for device in DEVICES:
        values += torch.nn.functional.dropout(torch.ones(20, device=device), 0.5).tolist()
        values += torch.randn(3, device=device).tolist()
    return values


@pytest.fixture(autouse=True)
def _leave_the_generators_alone():
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002


def test_seed_decides_everything():
    def drawn(*seed: int) -> list[float]:
        seed_everything(*seed)
        return draw()

    assert drawn(1) == drawn(1)
    assert drawn(1, 5, 0) == drawn(1, 5, 0)
    different = [drawn(*seed) for seed in [(1,), (2,), (1, 5, 0), (1, 5, 1), (1, 6, 0), (2, 5, 0)]]
    for position in range(4):  # each generator for itself
        assert len({values[position] for values in different}) == len(different)
    assert len({tuple(values[4:]) for values in different}) == len(different)
