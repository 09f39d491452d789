"""The paper's experiments as data (`tables/*.yaml`), run at an affordable scale and judged by the paper's claims."""


class CellStopped(Exception):
    """A request to stop, raised after the running cell wrote its checkpoint."""

    def __init__(self, signal: int):
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal
