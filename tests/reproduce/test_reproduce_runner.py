"""The runner: finished cells are skipped, broken ones go on, a failing one does not stop the rest."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import litebert
from litebert.files import hold_lock
from litebert.pretraining import run as pretraining_run
from litebert.reproduce import CellStopped
from litebert.reproduce import cell as cell_module
from litebert.reproduce.cell import is_trained, load_cell, missing_metrics, read_result, save_cell
from litebert.reproduce.paper import make_table
from litebert.reproduce.plan import Options, make_plan
from litebert.reproduce.results import collect
from litebert.reproduce.runner import merge_cells, run_cells


@pytest.fixture
def plan(tiny_table, tiny_scale, corpus, tmp_path):
    return make_plan(tiny_table, tiny_scale, corpus, tmp_path / "out", Options(seeds=1), vocabulary=300)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(pretraining_run, "measure_peak", lambda device: 1e9)


@pytest.fixture
def said():
    return []


def work(plan, said, **options):
    return run_cells(merge_cells([plan.cells]), plan.out / "cells", say=said.append, **options)


def refuse(*_, **__):
    raise AssertionError("this was finished already")


def fail_for(objective, original):
    def pretrain(config, out, **options):
        if config.recipe.objective == objective:
            raise RuntimeError("CUDA out of memory: tried to allocate\nmuch")
        return original(config, out, **options)

    return pretrain


def test_finished_cells_are_skipped(plan, said, monkeypatch):
    assert work(plan, said) == {}
    results = collect(plan)
    assert set(results.of("sop", "mlm")) == {0}
    assert results.facts["sop", 0]["steps"] == 6
    assert results.facts["sop", 0]["mlm_floor"] == results.facts["nsp", 0]["mlm_floor"]  # of the same masks
    assert not results.problems
    folder = plan.cell_folder(plan.cells["sop", 0])
    assert not (folder / "run" / "checkpoints").exists()
    monkeypatch.setattr(cell_module, "pretrain", refuse)
    monkeypatch.setattr(cell_module, "score_examples", refuse)
    assert work(plan, said) == {}
    assert said[-1] == "2 of 2 cells are already finished"


def test_a_cell_is_measured_again_only_for_what_is_new(plan, said, tiny_table, tiny_scale, corpus, monkeypatch):
    work(plan, said)
    facts = collect(plan).facts["sop", 0]
    wider = make_plan(
        make_table("figure1", {**TABLE, "measure": ["mlm", "l2_roughness"]}),
        tiny_scale,
        corpus,
        plan.out,
        Options(seeds=1),
        vocabulary=300,
    )
    monkeypatch.setattr(cell_module, "pretrain", refuse)
    monkeypatch.setattr(cell_module, "score_examples", refuse)
    assert wider.cells["sop", 0].name == plan.cells["sop", 0].name
    assert missing_metrics(wider.cells["sop", 0], plan.cell_folder(wider.cells["sop", 0])) == ("l2_roughness",)
    assert work(wider, said) == {}
    assert len(collect(wider).layers["sop", 0]["l2"]) == 2
    assert collect(wider).facts["sop", 0] == facts  # also the floor, which only scoring finds
    assert facts["mlm_floor"] > 0


TABLE = {"title": "t", "varies": "v", "measure": ["mlm"], "rows": {"sop": {"model": "albert-base"}}}


def break_evaluation(monkeypatch, number):
    """Ctrl-C during the evaluation of that number, once."""
    calls, original = [], pretraining_run.evaluate_batches

    def broken(*arguments):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(pretraining_run, "evaluate_batches", broken)


def test_a_broken_cell_goes_on_to_the_same_numbers(plan, said, monkeypatch, tmp_path, tiny_table, tiny_scale, corpus):
    whole = make_plan(tiny_table, tiny_scale, corpus, tmp_path / "whole", Options(seeds=1), vocabulary=300)
    work(whole, said)

    break_evaluation(monkeypatch, 2)  # at the end of the first run, after the checkpoint of step 4
    with pytest.raises(KeyboardInterrupt):
        work(plan, said)
    first = plan.cell_folder(plan.cells["nsp", 0])
    assert not is_trained(first)
    assert (first / "run" / "checkpoints").exists()
    assert work(plan, said) == {}
    lines = [json.loads(line) for line in (first / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("resumed at step 4" in str(line.get("message")) for line in lines)
    for name, cell in plan.cells.items():
        again, once = (read_result(p.cell_folder(cell))["metrics"] for p in (plan, whole))
        assert again == once, name


def test_a_failing_cell_is_reported_and_does_not_stop_the_rest(plan, said, monkeypatch):
    original = cell_module.pretrain
    monkeypatch.setattr(cell_module, "pretrain", fail_for("nsp", original))
    failures = work(plan, said)
    failed = plan.cells["nsp", 0].name
    assert failures == {failed: "CUDA out of memory: tried to allocate"}
    assert "Traceback" in (plan.cell_folder(plan.cells["nsp", 0]) / "error.txt").read_text()
    assert any("FAILED: CUDA out of memory" in line for line in said)
    results = collect(plan, failures)
    assert results.problems == {("nsp", 0): "CUDA out of memory: tried to allocate"}
    assert results.of("sop", "sop")
    monkeypatch.setattr(cell_module, "pretrain", original)
    assert work(plan, said) == {}  # tried again
    assert not collect(plan).problems


def test_a_row_that_begins_with_a_failed_one_is_not_tried(tiny_scale, corpus, tmp_path, said, monkeypatch):
    rows = {"deep": {"layers": 3, "after": "shallow"}, "shallow": {"layers": 1}}
    table = make_table("table11", {**TABLE, "row": {"model": "albert-large"}, "rows": dict(reversed(rows.items()))})
    plan = make_plan(table, tiny_scale, corpus, tmp_path, Options(seeds=1), vocabulary=300)
    deep = plan.cells["deep", 0]
    assert deep.after == plan.cells["shallow", 0].name
    assert (deep.seed, deep.run.seed, deep.name.split("-")[-2]) == (0, 1000, "seed0")  # other batches, same questions
    original = cell_module.pretrain
    monkeypatch.setattr(cell_module, "pretrain", fail_for("sop", original))
    assert work(plan, said)[deep.name] == f"starts from the model of {deep.after}, which failed"
    monkeypatch.setattr(cell_module, "pretrain", original)
    assert work(plan, said) == {}
    notes = plan.cell_folder(deep) / "run" / "config.yaml"
    assert str(plan.cell_folder(plan.cells["shallow", 0]) / "run" / "model") in notes.read_text()


def test_a_cell_whose_model_is_gone_is_trained_again_where_the_model_is_needed(tiny_scale, corpus, tmp_path, said):
    rows = {"one": {"layers": 1}, "two": {"layers": 3, "after": "one"}, "three": {"layers": 6, "after": "two"}}
    table = make_table("table11", {**TABLE, "row": {"model": "albert-large"}, "rows": rows})
    plan = make_plan(table, tiny_scale, corpus, tmp_path, Options(seeds=1), vocabulary=300)
    assert work(plan, said) == {}
    folders = {row: plan.cell_folder(plan.cells[row, 0]) for row in rows}
    began = {row: (folder / "run" / "run.json").read_text() for row, folder in folders.items()}
    for folder in folders.values():
        shutil.rmtree(folder / "run" / "model")
    assert work(plan, said) == {}
    assert said[-1] == "3 of 3 cells are already finished"  # nobody asks for a model
    shutil.rmtree(folders["three"])
    (folders["one"] / "run" / "model").mkdir()  # as if it were there: the second one then has to be trained again
    said.clear()
    failures = work(plan, said)
    assert said[0] == f"{folders['two'].name}: its model is gone; training it again"
    assert list(failures) == [folders["two"].name, folders["three"].name]  # an empty folder is no model
    shutil.rmtree(folders["one"] / "run" / "model")
    assert work(plan, said) == {}
    assert not collect(plan).problems
    for row in ("one", "two"):
        assert (folders[row] / "run" / "run.json").read_text() != began[row]


def test_a_cell_whose_run_is_gone_begins_anew_and_one_that_was_stopped_goes_on(
    tiny_scale, corpus, tmp_path, said, monkeypatch
):
    rows = {"one": {"layers": 1}, "two": {"layers": 3, "after": "one"}}
    table = make_table("table11", {**TABLE, "row": {"model": "albert-large"}, "rows": rows})
    plan = make_plan(table, tiny_scale, corpus, tmp_path, Options(seeds=1), vocabulary=300)
    one, two = (plan.cell_folder(plan.cells[row, 0]) for row in rows)
    break_evaluation(monkeypatch, 4)  # at the end of the second run, after the checkpoint of step 4
    with pytest.raises(KeyboardInterrupt):
        work(plan, said)
    shutil.rmtree(one / "run" / "model")
    said.clear()
    assert work(plan, said) == {}
    assert said[0] == "1 of 2 cells are already finished"  # the second goes on from its own checkpoint

    shutil.rmtree(one / "run")  # also what is left where somebody was killed while beginning anew
    shutil.rmtree(two)
    (one / "tasks" / "sst-2").mkdir(parents=True)
    assert work(plan, said) == {}
    assert f"{one.name}: its model is gone; training it again" in said
    assert not (one / "tasks").exists()  # fine-tuned from the model that is gone
    assert not collect(plan).problems


def test_several_cells_at_once_in_processes_of_their_own(plan, said):
    cells = merge_cells([plan.cells])
    bad = cells[0]
    folder = plan.out / "cells"
    broken = type(bad)(**{**vars(bad), "run": type(bad.run)(**{**vars(bad.run), "init_from": "nowhere/at-all"})})
    failures = run_cells([broken, cells[1]], folder, jobs=2, say=said.append)
    assert list(failures) == [bad.name]
    assert "nowhere/at-all" in failures[bad.name]
    assert not missing_metrics(cells[1], folder / cells[1].name)
    assert load_cell(folder / cells[1].name).run.device.threads >= 1


def test_what_begins_with_a_timed_cell_waits_for_it(tiny_scale, corpus, tmp_path, said, monkeypatch):
    rows = {"shallow": {"layers": 1}, "deep": {"layers": 3, "after": "shallow"}}
    table = make_table("table11", {**TABLE, "row": {"model": "albert-large"}, "rows": rows})
    plan = make_plan(table, tiny_scale, corpus, tmp_path, Options(seeds=1), vocabulary=300)
    shallow, deep = merge_cells([plan.cells])
    # A cell with a wall-clock limit has the machine for itself, after all that can share it.
    timed = dataclasses.replace(shallow, run=dataclasses.replace(shallow.run, max_minutes=5.0))
    assert run_cells([timed, deep], tmp_path / "cells", jobs=2, say=said.append) == {}
    assert [line.split()[1] for line in said] == [shallow.name, deep.name]
    # Where it fails, the other is not tried.
    monkeypatch.setattr(cell_module, "pretrain", refuse)
    failures = run_cells([timed, deep], tmp_path / "again", jobs=2, say=said.append)
    assert failures[deep.name] == f"starts from the model of {shallow.name}, which failed"


def test_sigterm_is_passed_on_to_every_cell_and_they_are_waited_for(plan, said, tmp_path, monkeypatch):
    # In place of Python: a "cell" that goes on until it is told to stop, and takes its time to write a checkpoint.
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\n"
        """trap 'sleep 0.2; echo saved > "$3/checkpoint"; exit 143' TERM\n"""
        """echo $$ > "$3/begun"; while :; do sleep 0.02; done\n"""
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    folders = [plan.cell_folder(cell) for cell in plan.cells.values()]

    def stop_us_when_all_have_begun():
        while not all((folder / "begun").exists() for folder in folders):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_us_when_all_have_begun, daemon=True).start()
    with pytest.raises(CellStopped) as caught:
        work(plan, said, jobs=2)
    assert caught.value.signal == signal.SIGTERM
    for folder in folders:
        assert (folder / "checkpoint").read_text() == "saved\n"
        with pytest.raises(ProcessLookupError):
            os.kill(int((folder / "begun").read_text()), 0)
    assert not said  # stopped is not failed


PROCESS = """
import sys
from pathlib import Path
from litebert.pretraining import run
from litebert.reproduce.cell import load_cell
from litebert.reproduce.runner import run_cells

run.measure_peak = lambda device: 1e9
folder = Path(sys.argv[1])
cells = [load_cell(folder / name) for name in sys.argv[2:]]
print(run_cells(cells, folder, say=lambda line: print("said", line)))
"""


def test_under_torchrun_all_train_and_the_main_process_measures(plan, said, monkeypatch):
    """This process is the first of two; a cell that fails in both, or here alone, does not stop the rest."""
    cell = plan.cells["sop", 0]
    run = dataclasses.replace(cell.run, batch_tokens=2 * cell.run.batch_tokens)  # a row for each
    bad = dataclasses.replace(cell, name="bad", run=dataclasses.replace(run, init_from="nowhere/at-all"))
    after = dataclasses.replace(cell, name="after-bad", run=run, after="bad")
    busy, sound = (dataclasses.replace(cell, name=name, run=run) for name in ("busy", "sound"))
    cells, folder = [bad, after, busy, sound], plan.out / "cells"
    for cell in cells:
        save_cell(cell, folder / cell.name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment = {**os.environ, **world, "RANK": "1", "LOCAL_RANK": "1"}
    environment["PYTHONPATH"] = str(Path(litebert.__file__).parent.parent)
    command = [sys.executable, "-c", PROCESS, str(folder), *(cell.name for cell in cells)]
    other = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for name, value in {**world, "RANK": "0", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        (folder / "busy" / "run").mkdir()
        with hold_lock(folder / "busy" / "run" / ".lock"):  # which only the first process looks at
            failures = run_cells(cells, folder, say=said.append)
        output, _ = other.communicate(timeout=60)
    finally:
        other.kill()
    assert other.returncode == 0, output
    assert list(failures) == ["bad", "after-bad", "busy"], failures
    assert failures["after-bad"] == "starts from the model of bad, which failed"
    assert "nowhere/at-all" in (folder / "bad" / "error.txt").read_text()
    assert "another process is training in this folder" in failures["busy"]
    assert "'after-bad'" in output
    assert "'busy': 'process 1 of 2 lost contact" in output
    assert "'sound'" not in output  # nor did one of them train this cell and the other the one before
    assert "said" not in output
    assert [line.split()[1] for line in said] == [cell.name for cell in cells]
    assert not missing_metrics(sound, folder / sound.name)
    facts = json.loads((folder / "sound" / "run" / "run.json").read_text())
    assert (facts["completed"], facts["hardware"]["processes"]) == (True, 2)


def test_a_request_to_stop_gets_through(plan, said, monkeypatch):
    def stopped(config, out, **_):
        return pretraining_run.RunResult(out, 3, completed=False, signal=15)

    monkeypatch.setattr(cell_module, "pretrain", stopped)
    with pytest.raises(CellStopped) as caught:
        work(plan, said)
    assert caught.value.signal == 15


def test_cells_are_written_and_read_back(plan, tmp_path):
    cell = plan.cells["sop", 0]
    save_cell(cell, tmp_path / "cell")
    assert load_cell(tmp_path / "cell") == cell


def test_tables_share_cells_and_want_more_of_them(plan):
    cell = plan.cells["sop", 0]
    more = type(cell)(**{**vars(cell), "wanted": ("mlm", "nsp_probe"), "tasks": "tasks"})
    (merged,) = merge_cells([{("a", 0): cell}, {("b", 0): more}])
    assert merged.wanted == ("mlm", "sop", "nsp_probe")
    assert merged.tasks == "tasks"
