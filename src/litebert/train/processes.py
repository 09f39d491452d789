"""The processes of a run: several as one under `torchrun`, one sum per step, an error instead of a hang, and signals.

ALBERT has few gradients, and a shared layer's gradient is complete only when the backward pass ends: one all-reduce of
one flat buffer per step is all the communication there is.

    with connect(world_from_environment(), "cpu", timeout=600) as world, stop_on_signals() as stop:
        while not stop.requested:
            totals = sum_gradients(params, torch.tensor([loss_sum, num_masked]), world)"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from litebert.errors import ConfigError, LitebertError

T = TypeVar("T")


class WorkerLostError(LitebertError, RuntimeError):
    """Another process of the run has died or hangs."""


@dataclass(frozen=True)
class World:
    """The processes of a run; this one is `rank` of `size`, and `local_rank` of `local_size` on its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    grouped: bool = False  # whether it opens a process group even if it is alone, to try one: LITEBERT_PROCESS_GROUP=1

    @property
    def has_group(self) -> bool:
        """Whether the processes talk to each other through torch.distributed."""
        return self.size > 1 or self.grouped

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and output."""
        return self.rank == 0


def world_from_environment(environment: Mapping[str, str] = os.environ) -> World:
    """The world that `torchrun` describes, or a world of one."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    present = [name for name in names if name in environment]
    if "RANK" not in present and "WORLD_SIZE" not in present:
        return World()
    if missing := set(names) - set(present):
        raise ConfigError(f"{present[0]} is set but {', '.join(sorted(missing))} is not; start with torchrun")
    try:
        world = World(
            rank=int(environment["RANK"]),
            size=int(environment["WORLD_SIZE"]),
            local_rank=int(environment["LOCAL_RANK"]),
            local_size=int(environment.get("LOCAL_WORLD_SIZE", environment["WORLD_SIZE"])),
            grouped=environment.get("LITEBERT_PROCESS_GROUP") == "1",
        )
    except ValueError as error:
        raise ConfigError(f"RANK, WORLD_SIZE, LOCAL_RANK: {error}") from None
    if not 0 <= world.rank < world.size:
        raise ConfigError(f"RANK {world.rank} does not fit WORLD_SIZE {world.size}")
    return world


@contextlib.contextmanager
def connect(world: World, device: torch.device | str, timeout: float = 600.0) -> Iterator[World]:
    """Join the other processes and leave them cleanly; a lost one is waited for `timeout` seconds at most."""
    if not world.has_group:
        yield world
        return
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    limit = timedelta(seconds=timeout)
    with _lost(world):
        place = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        store = _meeting_place(place, world.rank, world.size, limit)
        _forget_group_names()
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=PrefixStore(agree_on_attempt(store, world, timeout), store),
            rank=world.rank,
            world_size=world.size,
            timeout=limit,
            device_id=device if on_gpu else None,
        )
    try:
        yield world
    finally:
        dist.destroy_process_group()


def _forget_group_names() -> None:
    """Reset torch's numbering of process groups.

    torch restarts it only when a group ends. After a group that never formed, this process would look for the others
    under a different name, and both would wait until the timeout.
    """
    if not dist.is_initialized():
        distributed_c10d._world.group_count = 0


@functools.cache
def _meeting_place(place: tuple[str, str], rank: int, size: int, timeout: timedelta) -> Store:
    """The store where processes find each other, at the environment's `place`: one for all runs of a process.

    With one per run, a process that starts the next run early could still find the last one's store, which then ends.
    """
    store, _, _ = next(rendezvous("env://", rank, size, timeout=timeout))
    return store


def agree_on_attempt(store: Store, world: World, timeout: float) -> str:
    """A name that only the live processes of this attempt share: "6f0c...".

    torchrun's store outlives a restart, with the addresses of dead processes in it, so each attempt needs its own name.
    The restart count will not do: machines count differently when only one of them lost a process.
    """
    me = uuid.uuid4().hex
    if world.is_main:
        store.set("attempt", me)
        for rank in range(1, world.size):
            other = store.get(f"{me}/{rank}").decode()  # waits for it
            store.set(f"{me}/{other}", "welcome")
        return me
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        attempt = store.get("attempt").decode()
        store.set(f"{attempt}/{world.rank}", me)
        if store.check([f"{attempt}/{me}"]):  # a dead main process answers no one
            return attempt
        time.sleep(0.02)
    raise RuntimeError(f"process 0 did not answer within {timeout:g} s")


@torch.no_grad()
def sum_gradients(params: Iterable[Tensor], totals: Tensor, world: World) -> Tensor:
    """Add up all processes' gradients in place, and their `totals` (loss sums, counts), in one message.

    Returns the sum of the totals. A parameter that has a gradient in some process gets one in
    all; where none has, it stays None.
    """
    if not world.has_group:
        return totals
    params = list(params)
    present = torch.tensor([float(param.grad is not None) for param in params], device=totals.device)
    parts = [torch.zeros_like(param) if param.grad is None else param.grad for param in params]
    flat = torch.cat([totals, present, *(part.reshape(-1) for part in parts)])
    with _lost(world):
        dist.all_reduce(flat)
    summed = flat.split([totals.numel(), len(params), *(part.numel() for part in parts)])
    # Only a process that lacks a gradient has to look (a sync) whether another has it.
    anywhere = summed[1].tolist() if any(param.grad is None for param in params) else []
    for i, (param, total) in enumerate(zip(params, summed[2:], strict=True)):
        if param.grad is not None:
            param.grad.copy_(total.view_as(param))
        elif anywhere[i]:
            param.grad = total.view_as(param).clone()
    return summed[0].clone()


@torch.no_grad()
def sum_totals(totals: Tensor, world: World) -> Tensor:
    """The sum of all processes' `totals` (counts, loss sums) in their own precision: [1, 2] and [3, 4] -> [4, 6]."""
    if not world.has_group:
        return totals
    summed = totals.clone()
    with _lost(world):
        dist.all_reduce(summed)
    return summed


@torch.no_grad()
def copy_from_main(tensors: Iterable[Tensor], world: World) -> None:
    """Overwrite the tensors by those of the main process."""
    if world.has_group:
        with _lost(world):
            for tensor in tensors:
                dist.broadcast(tensor, src=0)


def gather(items: Sequence[T], world: World) -> list[T]:
    """All processes' items (anything that can be pickled), dealt out in turn: [0, 2] and [1, 3] -> [0, 1, 2, 3]."""
    if not world.has_group:
        return list(items)
    found: list[Any] = [None] * world.size
    with _lost(world):
        dist.all_gather_object(found, list(items))
    return [part[place] for place in range(len(found[0])) for part in found if place < len(part)]


@torch.no_grad()
def gather_rows(rows: Tensor, world: World) -> tuple[Tensor, int]:
    """All processes' rows [B, ...] after each other, and where this one's begin; each may have another number."""
    if not world.has_group:
        return rows.detach(), 0
    with _lost(world):
        mine = torch.tensor([len(rows)], device=rows.device)
        counts = [torch.zeros_like(mine) for _ in range(world.size)]
        dist.all_gather(counts, mine)
        sizes = torch.cat(counts).tolist()
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]), sum(sizes[: world.rank])


def wait_for_all(world: World) -> None:
    """Wait until every process has reached this point."""
    if world.has_group:
        with _lost(world):
            dist.barrier()


@contextlib.contextmanager
def _lost(world: World) -> Iterator[None]:
    """Turn torch's many errors for a lost process into one that says what to do."""
    try:
        yield
    except RuntimeError as error:  # dist.DistError is one too
        # "[/path/in/torch.cc:537] Connection reset by peer. This is typically ..." -> "Connection reset by peer"
        reason = re.sub(r"^(\[[^\]]*\] )+", "", str(error).strip()).split(". ")[0].partition("\n")[0]
        raise WorkerLostError(
            f"process {world.rank} of {world.size} lost contact with the others ({reason}). The last checkpoint "
            "is complete: rerun the same command to resume, or let torchrun restart it (--max-restarts)."
        ) from error


class StopRequest:
    """Whether a signal asked the run to end, and which."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def requested(self) -> bool:
        """Whether the run should save and end."""
        return self.signal is not None


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the first SIGTERM, SIGHUP or Ctrl-C into a request to stop; a second Ctrl-C aborts at once.

    SIGHUP comes when a terminal or connection closes; under nohup it stays ignored, and the run goes on.
    Under torchrun one Ctrl-C arrives twice, from the terminal and from torchrun, so there it never aborts: torchrun
    itself ends a process that takes too long.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers there only
        yield stop
        return
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ

    interrupts = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1 and not under_torchrun:
            raise KeyboardInterrupt
        stop.signal = stop.signal or signal.Signals(number)

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
