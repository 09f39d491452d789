"""The parameter counts on the page of concepts are those of the code."""

from __future__ import annotations

from doc_pages import ROOT

from litebert.model.count import count_parameters, paper_models


def test_counts_are_current():
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    models = [model for model in paper_models() if model.table in ("Table 4", "groups")]
    assert len(models) == 14
    for model in models:
        assert f" {count_parameters(model.config).total:,} |" in text, model.name
