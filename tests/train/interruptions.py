"""Runs that end in the middle: asked to stop, or killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from litebert.train.trainer import Trainer


class Killed(BaseException):
    """Ends a run without a word, as SIGKILL would."""


@contextlib.contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """A run inside gets SIGTERM in the middle of a step."""
    taken = Trainer.forward_backward

    def cut(self, *arguments):
        if self.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return taken(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "forward_backward", cut)
        yield


@contextlib.contextmanager
def killed_at(step: int) -> Iterator[None]:
    """A run inside dies in a step, without saving."""
    real = Trainer._set_learning_rate

    def die(self):
        if self.step == step:
            raise Killed
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_set_learning_rate", die)
        try:
            yield
        except Killed:
            return
    pytest.fail(f"the run never came to step {step}")
