"""The page that shows pretraining runs: one self-contained HTML file, made from run folders."""

from litebert.report.page import write_report

__all__ = ["write_report"]
