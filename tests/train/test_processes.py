"""Two gloo processes equal one; a dead or hung process leads to an error that says what to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from litebert.errors import ConfigError
from litebert.train.processes import (
    World,
    agree_on_attempt,
    connect,
    gather,
    stop_on_signals,
    sum_gradients,
    sum_totals,
    wait_for_all,
    world_from_environment,
)


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
    assert results["agreement"]["answers"] == [[7.0, 7.0]] * 2


def test_items_are_gathered_in_turn(results):
    assert results["gathered"]["answers"] == [[0, 1, 2, 3, 4]] * 2


def test_totals_keep_their_precision(results):
    for rank, (summed, mine) in enumerate(results["precise"]["answers"]):
        assert summed == [2.0**41 + 1, 2.0]
        assert mine == [2.0**40 + rank, 1.0]


def test_one_run_after_the_other(results):
    assert results["again"]["answers"] == [[2.0]] * 2


def test_a_connection_after_one_that_never_came_about(results):
    assert results["anew"]["answers"] == [[2.0]] * 2


@pytest.mark.parametrize("scenario", ["dead", "hung"])
def test_a_lost_process_is_an_error_and_not_a_hang(results, scenario):
    answer = results[scenario]["answers"][0]
    assert answer.startswith("WorkerLostError: process 0 of 2 lost contact with the others (")
    assert "rerun the same command to resume" in answer
    assert results[scenario]["seconds"] < 15  # the hung process sleeps twice as long


RESTARTED = """
import os, pathlib, sys
import torch
from litebert.train.processes import connect, sum_totals, world_from_environment

attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
with connect(world_from_environment(), "cpu", timeout=20) as world:
    total = sum_totals(torch.tensor([world.rank + 1.0]), world)
    if world.rank == 1 and attempt == "0":
        os._exit(1)
    total = sum_totals(total, world)
pathlib.Path(sys.argv[1], f"{attempt}-{world.rank}").write_text(str(total.item()))
"""


def test_an_elastic_restart_connects_to_the_living(tmp_path):
    script = tmp_path / "restarted.py"
    script.write_text(RESTARTED)
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["--max-restarts=1", "--monitor-interval=0.1", str(script), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found == {"1-0": "6.0", "1-1": "6.0"}


def test_a_store_with_the_rests_of_dead_processes():
    store = torch.distributed.HashStore()
    names = []
    for _ in range(3):
        with ThreadPoolExecutor() as pool:
            # The others come first, so from the second time on they meet the name that the last main process left.
            others = [pool.submit(agree_on_attempt, store, World(rank, 3), 10) for rank in (1, 2)]
            time.sleep(0.1)
            name = agree_on_attempt(store, World(0, 3), 10)
            assert [other.result() for other in others] == [name, name]
            names.append(name)
    assert len(set(names)) == 3
    with pytest.raises(RuntimeError, match="process 0 did not answer"):
        agree_on_attempt(store, World(1, 3), 0.1)


def test_world_of_one_needs_no_connection():
    assert world_from_environment({}) == World()
    assert world_from_environment({"LOCAL_RANK": "0", "MASTER_PORT": "1"}) == World()
    with connect(World(), "cpu") as world:
        assert world.is_main
        wait_for_all(world)
        totals = torch.tensor([1.0])
        assert sum_totals(totals, world) is totals
        assert sum_gradients([], totals, world) is totals
        assert gather([1, 2], world) == [1, 2]


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


@pytest.fixture(autouse=True)
def _not_under_torchrun(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_first_signal_is_a_request(number):
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.signal == number
    assert signal.getsignal(number) == before


def test_second_ctrl_c_aborts_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_on_signals():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)  # repeated requests do not matter
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_torchruns_double_ctrl_c_is_one_request(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT


def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_nothing_is_touched():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with stop_on_signals() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT) == before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, True)]


def test_a_process_alone_can_open_a_group(monkeypatch):
    """To try a backend where there is one GPU; without being asked for, one process has none."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    assert not world_from_environment(place).has_group
    world = world_from_environment({**place, "LITEBERT_PROCESS_GROUP": "1"})
    assert world.has_group
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place["MASTER_PORT"] = str(free.getsockname()[1])
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with connect(world, "cpu", timeout=30):
        assert torch.distributed.get_backend() == "gloo"
        assert sum_totals(torch.tensor([1.0, 2.0]), world).tolist() == [1.0, 2.0]
        assert gather([3, 4], world) == [3, 4]
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["pretrain", "no-such-preset"], 2)])
def test_under_torchrun_a_command_ends_with_its_own_code(arguments, code):
    """Whatever happens while the interpreter ends: here something aborts it, as a thread of torch's may."""
    program = (
        "import atexit, os, runpy, sys; atexit.register(os.abort); "
        f"sys.argv = ['litebert', *{arguments!r}]; runpy.run_module('litebert', run_name='__main__')"
    )

    def run(**more: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-c", program], env=os.environ | more, capture_output=True, text=True)

    assert run().returncode == -signal.SIGABRT
    done = run(TORCHELASTIC_RUN_ID="none")
    assert done.returncode == code
    assert ("litebert" in done.stdout) if code == 0 else ("no-such-preset" in done.stderr)
