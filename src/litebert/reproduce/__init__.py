"""The paper's experiments as data (`tables/*.yaml`), run at an affordable scale and judged by the paper's claims.

paper, scale          tables, metrics and claims; how large a reproduction is
plan -> runner        the runs of a table with equal budgets, one after the other or side by side
cell                  one run: trained, then measured (measure) and fine-tuned (downstream)
results -> verdicts   numbers by row and seed, and which claims hold (statistics)
corpus, reproduction  the text; all tables in one folder
"""


class CellStopped(Exception):
    """A request to stop, raised after the running cell wrote its checkpoint."""

    def __init__(self, signal: int):
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal
