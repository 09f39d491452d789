"""A request to stop, on its way up from whatever was running to the command."""

from __future__ import annotations


class CellStopped(Exception):
    """Somebody asked to stop while a cell was worked on; its checkpoint is written."""

    def __init__(self, signal: int):
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal
