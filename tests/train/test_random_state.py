"""Random states go through JSON and come back exactly; seeds decide every generator."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from litebert.errors import CheckpointError
from litebert.train.random_state import random_state, restore_random_state, seed_everything

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def draw() -> list[float]:
    values = [random.random(), random.gauss(0, 1), np.random.random(), np.random.standard_normal()]  # noqa: NPY002
    for device in DEVICES:
        values += torch.nn.functional.dropout(torch.ones(20, device=device), 0.5).tolist()
        values += torch.randn(3, device=device).tolist()
    return values


@pytest.fixture(autouse=True)
def _leave_the_generators_alone():
    before = random_state()
    yield
    restore_random_state(before)


def test_states_survive_json():
    seed_everything(3)
    draw()  # an odd number of gaussians is cached by then
    saved = json.loads(json.dumps(random_state()))
    first = draw()
    assert draw() != first
    restore_random_state(saved)
    assert draw() == first


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


def test_damaged_state_is_named():
    state = random_state()
    with pytest.raises(CheckpointError, match="random states of the checkpoint"):
        restore_random_state({**state, "torch": "AAAA"})
    with pytest.raises(CheckpointError, match="numpy"):
        restore_random_state({"python": state["python"]})
