"""A function over many items on a Ray cluster, through Ray Data: one task per item, wherever there is a free core."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from litebert.errors import LitebertError
from litebert.extras import require

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_ray(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[tuple[int, Result]]:
    """(index, result) for each item, as they finish.

    Runs on the cluster of RAY_ADDRESS or the one this process is connected to; else on a Ray of its own on this
    machine (with `workers` cores, 0 for all), which ends with it.
    """
    ray = require("ray", "--engine ray")
    data = require("ray.data", "--engine ray")
    if not items:
        return
    started = not ray.is_initialized()
    if started:
        address = os.environ.get("RAY_ADDRESS")
        local: dict[str, Any] = {"num_cpus": workers or None, "include_dashboard": False}
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **({} if address else local))
    context = data.DataContext.get_current()
    bars, context.enable_progress_bars = context.enable_progress_bars, False
    chatter = logging.getLogger("ray.data")
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        rows = [{"index": index, "item": pickle.dumps(item)} for index, item in enumerate(items)]
        dataset = data.from_items(rows, override_num_blocks=len(rows)).map(_apply, fn_args=(function,), num_cpus=1)
        for row in dataset.iter_rows():
            yield row["index"], pickle.loads(row["result"])
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise LitebertError(f"Ray: {reason}. What is finished is kept: run the same command again") from error
    finally:
        context.enable_progress_bars = bars
        chatter.setLevel(level)
        if started:
            ray.shutdown()


def _apply(row: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    return {"index": row["index"], "result": pickle.dumps(function(pickle.loads(row["item"])))}
