"""The command line for newcomers: quick help, clear error messages, a doctor."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import litebert
from litebert.cli import app, list_commands, main
from litebert.errors import InputError


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("litebert")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False, **options)


def test_help_names_the_commands_and_loads_no_torch():
    result = run("--help")
    assert result.returncode == 0
    for command in ("params", "convert", "verify", "doctor"):
        assert command in result.stdout
    code = "import sys\nfrom litebert.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_version(cli):
    assert cli("--version").out == f"litebert {litebert.__version__}\n"


@pytest.mark.parametrize(
    ("command", "work", "said"),
    [
        (("corpus", "build", "a.txt", "--tokenizer", "v", "--out", "s"), "litebert.text.build.build_store", True),
        (("score", "default", "a.txt", "--out", "s"), "litebert.bulk.score.score", True),
        (("corpus", "generate", "--out", "s"), "litebert.text.generate.generate_documents", False),
        (("params",), "litebert.model.count.paper_models", False),
    ],
)
def test_ctrl_c_ends_with_one_line(cli, monkeypatch, tmp_path, command, work, said):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, interrupted)
    result = cli(*command)
    assert result.code == 130, result
    assert result.err == f"interrupted{'; to resume, rerun the same command' * said}\n"


def test_ctrl_c_while_the_command_line_is_read_ends_with_one_line(cli, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("litebert.cli.TyperGroup.parse_args", interrupted)
    result = cli("params")
    assert (result.code, result.err) == (130, "interrupted\n")


def test_ctrl_c_while_the_command_line_is_imported_ends_with_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "litebert", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_command_from_outside(cli, monkeypatch):
    """As a file of `litebert.cli` would add it."""
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])

    @app.command()
    def shout(text: str, times: int = 1) -> None:
        """Say a text aloud."""
        if not text:
            raise InputError("text: must not be empty")
        print(" ".join([text.upper()] * times))

    assert ("shout",) in list_commands()
    assert "Say a text aloud." in cli("--help").out
    assert cli("shout", "hey", "--times", "2").out == "HEY HEY\n"
    mistake = cli("shout", "")
    assert (mistake.code, mistake.err) == (2, "error: text: must not be empty\n")
    assert "shout" in cli("shoot", "hey").err  # the nearest command


def test_doctor(cli):
    facts = json.loads(cli("doctor", "--json").out)
    assert facts["litebert"] == litebert.__version__
    assert facts["core"]["torch"].startswith("2.")
    assert facts["extras"]["hf"]["present"]
    assert 'pip install "litebert[ray]"' in facts["extras"]["ray"]["install"]
    assert "torch" in cli("doctor").out


def test_doctor_shows_a_missing_extra(cli, monkeypatch):
    monkeypatch.setattr("litebert.cli.doctor.EXTRAS", {"serve": ("no_such_module",)})
    assert 'pip install "litebert[serve]"' in cli("doctor").out


def test_a_mistake_ends_with_one_message_and_code_2():
    result = run("params", "albert-bse")
    assert result.returncode == 2
    assert result.stderr.startswith("error: no preset 'albert-bse'; did you mean 'albert-base'")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("where", [0, 1, 2])
def test_debug_anywhere_shows_the_traceback(where):
    arguments = ["params", "albert-bse"]
    arguments.insert(where, "--debug")
    result = run(*arguments)
    assert "Traceback" in result.stderr
    assert "ConfigError" in result.stderr


def test_usage_errors_have_code_2():
    for arguments in (["parms"], ["params", "--colour"], ["convert"]):
        result = run(*arguments)
        assert (result.returncode, "Traceback" in result.stderr) == (2, False)


def test_a_full_disk_is_no_traceback(monkeypatch, capsys):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/model.safetensors")

    monkeypatch.setattr("litebert.model.convert.convert_model", full)
    with pytest.raises(SystemExit) as stop:
        main(["convert", "default", "b"])
    assert stop.value.code == 2
    told = "model.safetensors: No space left on device; free some space and rerun the same command"
    assert told in capsys.readouterr().err


def test_a_disk_that_is_full_on_the_way_names_what_was_to_be_written(tmp_path):
    """Every file may have 20 kB here; what stood there before stays."""
    (tmp_path / "gen.txt").write_text("old")
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    code += "from litebert.cli import main\nmain({!r})"
    lines = (
        ["corpus", "generate", "--documents", "300", "--out", "gen.txt"],
        ["convert", "default", "copy"],
        ["predict", "embed", *(["a text"] * 20), "--out", "embeddings.jsonl"],
    )
    for arguments in lines:
        command = [sys.executable, "-c", code.format(arguments)]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 2, result
        told = f"{arguments[-1]}: File too large; free some space and rerun the same command to resume"
        assert told in result.stderr.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["gen.txt"]
    assert (tmp_path / "gen.txt").read_text() == "old"


def test_a_closed_pipe_is_quiet():
    command = Path(sys.executable).with_name("litebert")
    result = subprocess.run(
        f"{command} params --json | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
