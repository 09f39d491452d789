"""Two gloo processes equal one; a dead or hung process leads to an error that says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from litebert.errors import ConfigError
from litebert.train.distributed import World, any_process, connect, sum_gradients, wait_for_all, world_from_environment


@pytest.fixture(scope="module")
def results():
    command = [sys.executable, str(Path(__file__).with_name("two_processes.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_processes_equal_one(results):
    (ours, totals), (theirs, _) = results["equal"]["answers"]
    alone, alone_totals = results["alone"]
    assert totals == pytest.approx(alone_totals, rel=1e-14)
    assert alone_totals[1] == 5
    assert [grad is None for grad in ours] == [grad is None for grad in alone]
    for two, other, one in zip(ours, theirs, alone, strict=True):
        if one is not None:
            assert two == other
            assert two == pytest.approx(one, rel=1e-12, abs=1e-15)


def test_a_gradient_that_some_processes_lack(results):
    for grads, totals in results["missing"]["answers"]:
        assert grads == [[3.0, 3.0], [5.0, 6.0], None]
        assert totals == [2.0]


def test_all_agree(results):
    assert results["agreement"]["answers"] == [[True, False, [7.0, 7.0]]] * 2


@pytest.mark.parametrize("scenario", ["dead", "hung"])
def test_a_lost_process_is_an_error_and_not_a_hang(results, scenario):
    answer = results[scenario]["answers"][0]
    assert answer.startswith("WorkerLostError: process 0 of 2 lost touch with the others (")
    assert "start again with --resume auto" in answer
    assert results[scenario]["seconds"] < 15  # the hung process sleeps twice as long


def test_world_of_one_needs_no_connection():
    assert world_from_environment({}) == World()
    assert world_from_environment({"LOCAL_RANK": "0", "MASTER_PORT": "1"}) == World()
    with connect(World(), "cpu") as world:
        assert world.is_main
        wait_for_all(world)
        assert any_process(True, world)
        totals = torch.tensor([1.0])
        assert sum_gradients([], totals, world) is totals


def test_world_of_torchrun():
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    environment |= {"MASTER_ADDR": "a", "MASTER_PORT": "1"}
    world = world_from_environment(environment)
    assert world == World(rank=5, size=8, local_rank=1, local_size=4)
    assert not world.is_main


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"MASTER_ADDR": None}, "RANK is set but MASTER_ADDR is not; start with torchrun"),
        ({"RANK": None}, "WORLD_SIZE is set but RANK is not"),
        ({"RANK": "2"}, "RANK 2 does not fit WORLD_SIZE 2"),
        ({"RANK": "one"}, "invalid literal"),
    ],
)
def test_half_an_environment_is_an_error(change, message):
    environment = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    environment = {key: value for key, value in (environment | change).items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        world_from_environment(environment)
