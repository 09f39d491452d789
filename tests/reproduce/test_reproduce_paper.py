"""The tables as data: typos in the paper's numbers, names that mean nothing, counts that must be exact."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from litebert.errors import ConfigError
from litebert.model.heads import EncoderModel
from litebert.reproduce.paper import NAMES, average_of, load_table, make_table
from litebert.reproduce.scale import load_scale

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


# What the check above cannot see, as the paper prints it: table, column, its numbers from the first row to the last.
PRINTED = """
table1 params 108 334 12 18 60 235
table2 params 108 334 12 18 60 235
table2 speed_up 4.7 1.0 5.6 1.7 0.6 0.3
table3 params 87 89 93 108 10 12 16 31
table4 params 31 83 57 108 12 64 38 89
table5 mlm 54.9 54.5 54.0
table5 nsp 52.4 90.5 78.9
table5 sop 53.3 52.0 86.5
table9 mnli 86.6 89.8 90.2 90.4 90.8 91.3
table9 qnli 92.3 93.9 94.7 95.2 95.3 99.2
table9 qqp 91.3 91.8 92.2 92.0 92.2 90.5
table9 rte 70.4 83.8 86.6 88.1 89.2 89.2
table9 sst2 93.2 95.6 96.4 96.8 96.9 97.1
table9 mrpc 88.0 89.2 90.9 90.2 90.9 93.4
table9 cola 60.6 63.6 68.0 68.7 71.4 69.1
table9 stsb 90.0 91.8 92.4 92.7 93.0 92.5
table10 squad1_f1 94.8 94.8 95.5
table10 squad1_em 89.2 89.3 90.1
table10 squad2_f1 89.9 90.2 91.4
table10 squad2_em 87.2 87.4 88.9
table10 race 86.0 86.5 89.4
table12 params 18 60 225 499
"""


@pytest.mark.parametrize("line", PRINTED.strip().splitlines())
def test_numbers_without_an_average_are_as_printed(line):
    name, column, *numbers = line.split()
    rows = load_table(name).rows.values()
    assert [row.paper[column] for row in rows if column in row.paper] == [float(number) for number in numbers]


def test_steps_of_the_rows_are_the_papers():
    steps = {name: {key: row.steps for key, row in load_table(name).rows.items()} for name in NAMES}
    assert steps["table6"] == {"bert-large": 400_000, "albert-xxlarge": 125_000}
    assert set(steps["table8"].values()) == {1_000_000}
    for name in ("table9", "table10"):
        assert (steps[name]["albert-1M"], steps[name]["albert-1.5M"]) == (1_000_000, 1_500_000)
    for name in ("table2", "table3", "table4", "table5", "table7", "table11", "table12", "table13"):
        assert set(steps[name].values()) == {125_000}, name


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
