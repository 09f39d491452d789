"""The tables as data: typos in the paper's numbers, names that mean nothing, counts that must be exact."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from litebert.errors import ConfigError
from litebert.model.heads import EncoderModel
from litebert.reproduce.metrics import average_of
from litebert.reproduce.scale import load_scale
from litebert.reproduce.table import NAMES, load_table, make_table

FIVE = {"squad1_f1", "squad1_em", "squad2_f1", "squad2_em", "mnli", "sst2", "race"}


def test_all_tables_and_figures_are_there():
    assert (*(f"table{n}" for n in range(1, 14)), "figure1", "figure2") == NAMES
    for name in NAMES:
        table = load_table(name)
        assert table.claims, name
        assert table.label.lower().replace(" ", "") == name
    for name in ("table4", "table5", "table11"):
        assert load_table(name).seeds >= 3


@pytest.mark.parametrize("name", NAMES)
def test_printed_averages_are_the_means_of_the_printed_scores(name):
    # The paper's Avg is over five tasks: an independent check of every number that was typed in.
    table = load_table(name)
    for key, row in table.rows.items():
        if set(row.paper) >= FIVE and "average" in row.paper:
            mean = average_of(dict(row.paper), tuple(FIVE))
            assert mean == pytest.approx(row.paper["average"], abs=0.051), (name, key)  # it rounds


def test_parameters_are_those_of_real_models():
    paper = load_scale("paper")
    for name in ("table1", "table3", "table4"):
        for key, row in load_table(name).rows.items():
            with torch.device("meta"):
                model = EncoderModel(paper.model_of(row))
            millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
            printed = row.paper["params"]
            if key != "albert-xxlarge":  # the paper's 235M is wrong
                assert millions == pytest.approx(printed, abs=1.4), (name, key)


def test_each_depth_from_3_layers_on_begins_with_the_one_before():
    """Appendix A.1: networks with 3 or more layers start from the parameters of the depth before."""
    before = {row.layers: row.after for row in load_table("table11").rows.values()}
    depths = [1, 3, 6, 12, 24, 48]
    assert before == {1: None, **{deep: f"layers-{shallow}" for shallow, deep in pairwise(depths)}}


def test_a_name_that_means_nothing_is_refused():
    table = {"title": "t", "varies": "v", "measure": ["mlm"], "rows": {"a": {"model": "albert-base"}}}
    make_table("table1", table)
    for change, message in (
        ({"measure": ["mlmm"]}, "no metric 'mlmm'; did you mean 'mlm'"),
        ({"rows": {"a": {"model": "albert-base", "after": "b"}}}, "no row 'b' above it"),
        ({"claims": [{"text": "x", "metrics": ["mlm"], "of": {"c": 1}, "above": 0}]}, "no row 'c'"),
        ({"claims": [{"text": "x", "metrics": ["mlm"], "of": {"a": 1}}]}, "one of above, not_above and near"),
        ({"paper_columns": ["mlm"], "rows": {"a": {"paper": [1, 2]}}}, "2 numbers for 1 paper_columns"),
        ({"row": {"modell": "x"}}, "unknown key"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_table("table1", {**table, **change})


def test_an_unknown_table_is_named_with_its_neighbours():
    with pytest.raises(ConfigError, match="did you mean 'table5'"):
        load_table("tabel5")
