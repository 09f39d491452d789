"""Run by test_processes.py: forks two processes joined by gloo, one scenario after the other; prints JSON."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from litebert.errors import LitebertError
from litebert.train.processes import (
    World,
    connect,
    copy_from_main,
    gather,
    sum_gradients,
    sum_totals,
    wait_for_all,
    world_from_environment,
)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(9, 9)).double()


def gradients(network: nn.Module, rows: slice, world: World) -> tuple[list[Any], list[float]]:
    """Gradients of the mean loss over the global batch; each process counts a different number of labels."""
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.tensor([0, 1, -100, 2, -100, -100, 0, 1])  # 3 counted in the first half, 2 in the second
    scores = network[:3](inputs[rows])
    loss = nn.functional.cross_entropy(scores, labels[rows], reduction="sum")
    loss.backward()
    totals = torch.tensor([loss.item(), float((labels[rows] >= 0).sum())], dtype=torch.float64)
    totals = sum_gradients(network.parameters(), totals, world)
    for param in network.parameters():
        if param.grad is not None:
            param.grad /= totals[1]
    grads = [None if param.grad is None else param.grad.flatten().tolist() for param in network.parameters()]
    return grads, totals.tolist()


def equal(world: World) -> Any:
    half = slice(4 * world.rank, 4 * world.rank + 4)
    return gradients(model(), half, world)


def missing(world: World) -> Any:
    """The second parameter has a gradient on process 1 only, the third on none."""
    params = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    params[0].grad = torch.full((2,), 1.0 + world.rank)
    if world.rank == 1:
        params[1].grad = torch.tensor([5.0, 6.0])
    totals = sum_gradients(params, torch.tensor([1.0]), world)
    return [None if p.grad is None else p.grad.tolist() for p in params], totals.tolist()


def agreement(world: World) -> Any:
    mine = torch.full((2,), float(world.rank + 7))
    copy_from_main([mine], world)
    wait_for_all(world)
    return mine.tolist()


def precise(world: World) -> Any:
    """Sums that a float32 cannot hold; the caller's tensor stays as it was."""
    mine = torch.tensor([2.0**40 + world.rank, 1.0], dtype=torch.float64)
    return sum_totals(mine, world).tolist(), mine.tolist()


def gathered(world: World) -> Any:
    """Three items of process 0 and two of process 1."""
    return gather([[0, 2, 4], [1, 3]][world.rank], world)


def dead(world: World) -> Any:
    sum_totals(torch.zeros(1), world)
    if world.rank == 1:
        os._exit(9)
    return sum_totals(torch.zeros(1), world).tolist()


def hung(world: World) -> Any:
    sum_totals(torch.zeros(1), world)
    if world.rank == 1:
        time.sleep(30)  # ended by the parent
    return sum_totals(torch.zeros(1), world).tolist()


def again(world: World) -> Any:
    """One run after the other: process 1 is at the second while process 0 has not left the first."""
    total = sum_totals(torch.ones(1), world).tolist()
    if world.rank == 0:
        time.sleep(0.5)
    return total


def anew(world: World) -> Any:
    """As `run` begins it: after a connection of process 1 that never came about."""
    return sum_totals(torch.ones(1), world).tolist()


def fail_to_connect() -> None:
    """What is left of a partner that went away while both were connecting."""
    store, limit = torch.distributed.HashStore(), timedelta(seconds=0.2)
    try:
        torch.distributed.init_process_group("gloo", store=store, rank=1, world_size=2, timeout=limit)
    except RuntimeError:
        return
    raise AssertionError("nobody was there")


def run(scenario: Callable[[World], Any], timeout: float) -> Any:
    """What process 0 and 1 answer, and how long process 0 took."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children, pipes = [], []
    start = time.monotonic()
    for rank in range(2):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            try:
                if scenario is anew and rank == 1:
                    fail_to_connect()
                for _ in range(2 if scenario is again else 1):
                    with connect(world_from_environment(), "cpu", timeout=timeout) as world:
                        answer = scenario(world)
            except LitebertError as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(send, json.dumps(answer).encode())
            os._exit(0)
        os.close(send)
        children.append(child)
        pipes.append(os.fdopen(receive))
    first = pipes[0].read()
    seconds = time.monotonic() - start
    if scenario is hung:
        os.kill(children[1], 9)
    second = pipes[1].read()
    for child in children:
        os.waitpid(child, 0)
    return {"answers": [json.loads(text) if text else None for text in (first, second)], "seconds": seconds}


if __name__ == "__main__":
    torch.set_num_threads(1)  # forked children cannot use torch's threads
    results = {
        scenario.__name__: run(scenario, timeout)
        for scenario, timeout in [
            (equal, 30),
            (missing, 30),
            (agreement, 30),
            (precise, 30),
            (gathered, 30),
            (again, 10),
            (anew, 10),
            (dead, 20),
            (hung, 1.0),
        ]
    }
    results["alone"] = gradients(model(), slice(0, 8), World())
    json.dump(results, sys.stdout)
