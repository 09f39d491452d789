"""The paper's experiments as data (`tables/*.yaml`), run at the scale one can afford, beside the paper's numbers."""


class CellStopped(Exception):
    """Somebody asked to stop while a cell was worked on; its checkpoint is written."""

    def __init__(self, signal: int):
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal
