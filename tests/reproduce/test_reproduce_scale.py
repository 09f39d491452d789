"""Every table has runs at every scale, and what is meant to differ, and only that, differs."""

from __future__ import annotations

from dataclasses import fields

import pytest

from litebert.errors import ConfigError
from litebert.reproduce import plan
from litebert.reproduce.corpus import Corpus
from litebert.reproduce.paper import NAMES, load_table
from litebert.reproduce.plan import Options, estimate, make_plan, minutes_per_run, plan_steps
from litebert.reproduce.scale import load_scale, load_scales


@pytest.fixture
def no_timing(monkeypatch):
    monkeypatch.setattr(plan, "seconds_per_step", lambda config: config.model.hidden_size / 1e4)


@pytest.mark.parametrize("scale", list(load_scales()))
@pytest.mark.parametrize("name", NAMES)
def test_every_table_runs_at_every_scale(name, scale, corpus, tmp_path, no_timing):
    table, chosen = load_table(name), load_scale(scale)
    rows, source = estimate(table, chosen, Options())
    plan = make_plan(table, chosen, corpus, tmp_path, Options(), plan_steps([table], chosen, Options()))
    if name == "table1":
        assert not rows
        assert not plan.cells
        return
    to_run = [key for key, row in table.rows.items() if row.is_run]
    assert [row.row for row in rows] == to_run
    assert all(row.tokens > 0 and row.hours > 0 and row.runs == table.seeds for row in rows)
    assert source
    assert set(plan.cells) == {(key, seed) for key in to_run for seed in range(table.seeds)}
    for cell in plan.cells.values():
        assert cell.run.learning_rate().warmup_steps < cell.run.steps
        assert not cell.run.depth, "a depth schedule would decide the verdict"
        assert (cell.run.max_minutes is not None) == (table.budget == "time" and scale != "paper")
    tokens = {cell.run.steps * cell.run.batch_tokens for cell in plan.cells.values()}
    assert len(tokens) == 1 or table.budget == "time" or scale == "paper", "rows see equal tokens"


def test_paper_scale_is_the_papers_recipe():
    run = load_scale("paper").run_of(load_table("table4").rows["128-ffn"])
    model = run.model
    assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads) == (768, 12, 12)
    assert (model.embedding_size, model.sharing, model.hidden_dropout_prob) == (128, "ffn", 0.1)
    assert (run.steps, run.batch_tokens, run.recipe.max_length) == (125_000, 4096 * 512, 512)
    assert (run.optim.name, run.optim.lr, run.optim.warmup_steps) == ("lamb", 0.00176, 3125)


def test_dropout_is_removed_only_where_the_paper_removed_it():
    def dropout(table, row):
        return load_scale("paper").model_of(load_table(table).rows[row]).hidden_dropout_prob

    for table, row in (("table2", "albert-xxlarge"), ("table6", "albert-xxlarge"), ("table13", "layers-24")):
        assert dropout(table, row) == 0.1  # of 125k steps, before Table 8
    for table in ("table9", "table10"):
        assert (dropout(table, "bert-large"), dropout(table, "albert-1M"), dropout(table, "albert-1.5M")) == (0.1, 0, 0)
    assert (dropout("table8", "with"), dropout("table8", "without")) == (0.1, 0)


@pytest.mark.parametrize("scale", list(load_scales()))
def test_rows_that_compare_sharing_differ_in_nothing_else(scale):
    rows = load_table("table4").rows
    runs = [load_scale(scale).run_of(rows[f"128-{sharing}"]) for sharing in ("all", "attention", "ffn", "none")]
    for field in fields(runs[0]):
        if field.name != "model":
            assert len({repr(getattr(run, field.name)) for run in runs}) == 1, field.name
    different = {f.name for f in fields(runs[0].model) if len({repr(getattr(run.model, f.name)) for run in runs}) > 1}
    assert different == {"sharing", "num_hidden_groups"}


@pytest.mark.parametrize("scale", list(load_scales()))
def test_sizes_keep_their_order(scale):
    chosen = load_scale(scale)
    for name, size in (("table11", "num_hidden_layers"), ("table12", "hidden_size"), ("table3", "embedding_size")):
        rows = [row for key, row in load_table(name).rows.items() if not key.startswith("none")]
        sizes = [getattr(chosen.model_of(row), size) for row in rows]
        assert sizes == sorted(set(sizes)), (name, sizes)


def test_minutes_become_steps_that_the_slowest_row_can_do(no_timing):
    scale, tables = load_scale("gpu-hour"), [load_table("table3"), load_table("table12")]
    steps = plan_steps(tables, scale, Options(minutes=2))
    slowest = 3072 / 1e4  # seconds per step of hidden-6144, by the patched clock
    assert steps == dict.fromkeys(("table3", "table12"), int(120 / (plan.OVERHEAD * slowest)))
    # One hour over 24 runs; equal time gives each row its own steps.
    assert minutes_per_run(tables[0], scale, Options()) == 2.5
    timed = plan_steps([load_table("table6")], scale, Options(minutes=1))
    assert timed["table6/bert-large"] > timed["table6/albert-xxlarge"]
    assert plan_steps(tables, load_scale("paper"), Options()) == {}


def test_the_same_run_is_the_same_cell_in_every_table(corpus, tmp_path):
    scale = load_scale("cpu")
    cells = {
        name: make_plan(load_table(name), scale, corpus, tmp_path).cells for name in ("table3", "table4", "table5")
    }
    assert cells["table3"]["all-128", 0].name == cells["table4"]["128-all", 0].name
    assert cells["table4"]["128-all", 1].name == cells["table5"]["sop", 1].name
    assert cells["table4"]["128-all", 0].name != cells["table4"]["128-all", 1].name
    # What changes nothing about what is learned makes no other cell; what does, does.
    same = make_plan(load_table("table5"), scale, corpus, tmp_path, Options(settings=("log.report_every=7",))).cells
    assert same["sop", 0].name == cells["table5"]["sop", 0].name
    other = make_plan(load_table("table5"), scale, corpus, tmp_path, Options(settings=("optim.lr=1e-4",))).cells
    assert other["sop", 0].name != cells["table5"]["sop", 0].name


def test_options_that_cannot_be(tmp_path):
    for options in ({"seeds": 0}, {"minutes": 0.0}, {"steps": 0}, {"tasks": tmp_path / "nowhere"}):
        with pytest.raises(ConfigError):
            Options(**options)
    with pytest.raises(ConfigError, match="table3 has no speed"):
        estimate(load_table("table3"), load_scale("cpu"), Options(measure=("speed",)))
    with pytest.raises(ConfigError, match="more_store"):
        make_plan(load_table("table7"), load_scale("cpu"), Corpus(tmp_path, (), (), tmp_path, 0.0), tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'cpu'"):
        load_scale("cpuu")
