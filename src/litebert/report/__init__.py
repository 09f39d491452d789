"""Runs as one self-contained HTML page each: pretraining, fine-tuning, studies of several seeds, reproductions.

runs -> charts -> figures             run folders as data, the curves of a page, and how they are drawn
html, numbers, summary, provenance    what all pages share: the frame, numbers and axes, tables, config and events
pretraining_page, finetuning_page (studies), reproduction_page (reproduction_tables)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_report"]


def write_report(
    runs: Path | str | Sequence[Path | str], out: Path | str | None = None, *, print_scores: bool = False
) -> Path:
    """Write one page about a run folder or several: write_report(["runs/a", "runs/b"], "report.html") -> its path.

    Takes pretraining runs, fine-tuning runs and studies, or the folder of one reproduction. `out` defaults to
    report.html, in the run folder if there is only one. `print_scores` also prints the scores to the terminal.
    """
    folders = [Path(run) for run in ([runs] if isinstance(runs, Path | str) else runs)]
    target = None if out is None else Path(out)
    if len(folders) == 1 and (folders[0] / "reproduction.json").exists():
        from litebert.report.reproduction_page import write_reproduction_page

        return write_reproduction_page(folders[0], target)
    from litebert.report.finetuning_page import is_finetuning, write_finetuning_page

    if folders and all(is_finetuning(folder) for folder in folders):
        return write_finetuning_page(folders, target, print_scores)
    from litebert.report.pretraining_page import write_pretraining_page

    return write_pretraining_page(folders, target, print_scores)
