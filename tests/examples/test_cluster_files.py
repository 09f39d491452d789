"""examples/cluster: the shell scripts under Slurm's variables, with stand-ins for its commands, and the YAML."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from litebert.cli import app

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"


def parses(words: list[str]) -> None:
    """Refuse a command line that litebert does not have."""
    assert words[0] == "litebert"
    group = typer.main.get_command(app)
    with group.make_context("litebert", [words[1], "--help"], resilient_parsing=True):
        group.commands[words[1]].make_context(words[1], words[2:])


@pytest.fixture
def run(tmp_path):
    """A script with Slurm's variables: run("score.sbatch", ["m"], ID=0) -> the process, and what it called."""
    called = tmp_path / "called"
    for name in ("litebert", "srun", "scontrol"):
        stand_in = tmp_path / "bin" / name
        stand_in.parent.mkdir(exist_ok=True)
        line = f'printf "%s\\0" {name} "$@" >> {called}; printf "\\n" >> {called}' if name != "scontrol" else "echo one"
        stand_in.write_text(f"#!/bin/bash\n{line}\n")
        stand_in.chmod(0o755)

    def start(script, arguments, **variables):
        called.unlink(missing_ok=True)
        slurm = {f"SLURM_{name}": str(value) for name, value in variables.items()}
        here = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", **slurm}
        words = ["bash", str(FOLDER / script), *map(str, arguments)]
        done = subprocess.run(words, env=here, capture_output=True, text=True)
        lines = called.read_text().splitlines() if called.exists() else []
        return done, [line.rstrip("\0").split("\0") for line in lines]

    return start


def task(run, arguments, number, minimum, maximum, count):
    array = {"ARRAY_TASK_MIN": minimum, "ARRAY_TASK_MAX": maximum, "ARRAY_TASK_COUNT": count}
    return run("score.sbatch", arguments, ARRAY_TASK_ID=number, **array)


def test_the_tasks_of_an_array_share_all_files(run, tmp_path):
    files = [tmp_path / f"{number}.parquet" for number in range(5)]
    for file in files:
        file.touch()
    arguments = ["model", tmp_path / "*.parquet", "out"]
    seen = []
    for number in range(3):
        done, ((*words,),) = task(run, arguments, number, 0, 2, 3)
        assert done.returncode == 0, done.stderr
        parses(words)
        assert words[-2:] == ["--out", f"out/task-0000{number}"]
        seen += [word for word in words if word.endswith(".parquet")]
    assert sorted(seen) == [str(file) for file in files]
    # One of them again: the same files, since their number is given.
    done, ((*words,),) = task(run, [*arguments, 3], 1, 1, 1, 1)
    assert [word for word in words if word.endswith(".parquet")] == [str(files[1]), str(files[4])]
    done, calls = task(run, [*arguments, 6], 5, 5, 5, 1)
    assert (done.returncode, calls) == (0, [])
    assert done.stdout == "nothing for task 5 of 6: there are 5 files\n"


@pytest.mark.parametrize(
    ("number", "minimum", "maximum", "count", "more"),
    [(1, 1, 3, 3, []), (3, 3, 3, 1, []), (6, 0, 6, 2, []), (7, 7, 7, 1, [3])],
)
def test_an_array_that_would_leave_files_out_is_refused(run, tmp_path, number, minimum, maximum, count, more):
    (tmp_path / "a.parquet").touch()
    done, calls = task(run, ["model", tmp_path / "*.parquet", "out", *more], number, minimum, maximum, count)
    assert (done.returncode, calls) == (2, [])
    assert "must be 0 to n - 1" in done.stderr


def test_a_pattern_without_files_is_told(run, tmp_path):
    done, calls = task(run, ["model", tmp_path / "*.parquet", "out"], 0, 0, 1, 2)
    assert (done.returncode, calls) == (2, [])
    assert done.stderr == f"{tmp_path}/*.parquet: no such files\n"


def test_pretraining_meets_at_the_first_machine(run):
    done, ((*words,),) = run("pretrain.sbatch", ["a.yaml", "/shared/RUN"], JOB_NODELIST="n", NNODES=4, JOB_ID=7)
    assert done.returncode == 0, done.stderr
    assert words[:4] == ["srun", "torchrun", "--nnodes", "4"]
    assert "one:29500" in words
    assert words[words.index("-m") :] == ["-m", "litebert", "pretrain", "a.yaml", "--out", "/shared/RUN"]
    parses(words[words.index("-m") + 1 :])


def test_the_kubernetes_job_runs_a_command_that_exists():
    job = yaml.safe_load((FOLDER / "ray-job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    parses(shlex.split(job["spec"]["entrypoint"]))
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"])["pip"] == ["s3fs"]
    cluster = job["spec"]["rayClusterSpec"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        inside = group["template"]["spec"]
        mounted = {mount["name"] for each in inside["containers"] for mount in each["volumeMounts"]}
        assert mounted == {volume["name"] for volume in inside["volumes"]}
