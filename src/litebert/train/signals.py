"""Ctrl-C, SIGTERM and SIGHUP as a question that the training loop asks between steps.

with stop_on_signals() as stop:
    while not stop.requested: ...
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopRequest:
    """Whether somebody asked the run to end, and by which signal."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def requested(self) -> bool:
        """Whether the run is to save and end."""
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
