"""`litebert report` as a user meets it."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def run_folder(tmp_path):
    def make(name: str, accuracy: float):
        folder = tmp_path / name
        folder.mkdir()
        lines = [
            {"step": 10, "kind": "train", "loss": 5.0, "tokens": 10_000, "seconds": 2.0},
            {"step": 10, "kind": "eval", "mlm_loss": 4.5, "mlm_accuracy": accuracy},
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return make


def test_one_run_gets_its_page_into_its_folder(cli, run_folder):
    folder = run_folder("mine", 0.4125)
    result = cli("report", folder)
    assert result.code == 0, result
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    header, row, last = result.out.splitlines()
    assert header.split() == ["run", "MLM", "loss", "tokens", "time", "tok/s"]
    assert row.split() == ["mine", "41.2%", "4.500", "10.0k", "2.0", "s", "5.00k"]
    assert last == f"report: {folder / 'report.html'}"


def test_a_run_that_was_stopped_before_its_first_report(cli, tmp_path):
    folder = tmp_path / "young"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 3, "kind": "note", "message": "stopped"}) + "\n")
    assert cli("report", folder).out.splitlines() == ["young: no scores yet", f"report: {folder / 'report.html'}"]


def test_several_runs_are_compared_on_one_page(cli, run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [run_folder("a", 0.3), run_folder("b", 0.4)]
    result = cli("report", *folders)
    assert (result.code, result.out.splitlines()[-1]) == (0, "report: report.html")
    assert "2 runs compared" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert cli("report", *folders, "--out", "deep/page.html").code == 0
    assert (tmp_path / "deep" / "page.html").exists()


def test_the_browser_is_opened_on_request(cli, run_folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or len(opened) == 1)
    folder = run_folder("mine", 0.4)
    assert "no browser" not in cli("report", folder, "--open").out
    assert opened == [(folder / "report.html").resolve().as_uri()]
    assert "no browser found" in cli("report", folder, "--open").out


def test_mistakes(cli, run_folder, tmp_path):
    folder = run_folder("mine", 0.4)
    for arguments, message in (
        (["nowhere"], "no such folder"),
        ([tmp_path], "litebert report"),
        ([folder / "metrics.jsonl"], "is a file"),
        ([folder, "--out", tmp_path], "is a folder; name a file"),
    ):
        cli("report", *arguments).assert_refused(message)
    assert cli("report").code == 2
    (folder / "metrics.jsonl").write_text('{"step": 1}\nbroken\n{"step": 2}\n')
    assert "metrics.jsonl, line 2" in cli("report", folder).err


def test_names_with_markup_are_printed_as_they_are(cli, run_folder):
    assert "[red]run" in cli("report", run_folder("[red]run", 0.4)).out
