"""Commands start quickly: each imports only what it needs; help and error messages need no torch."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

from litebert.cli import list_commands

HEAVY = ("torch", "transformers", "sklearn", "scipy", "onnxruntime", "ray")
# What no prediction on a CPU needs. torch.nn.attention.varlen loads torch._dynamo, and so does `normal_` on "meta".
NEEDLESS = (*HEAVY[1:], "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "sympy", "triton", "pyarrow")
# Runs each command line of a JSON list in one process; prints its exit code, its last line, and what it loaded.
RUNNER = f"""
import contextlib, io, json, sys
from litebert.cli import main
for line in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try: main(line)
        except SystemExit as stop: code = stop.code
    heavy = [name for name in {HEAVY} if name in sys.modules]
    print(json.dumps([code, said.getvalue(), heavy]))
"""
MISTAKES = {
    "tokenizer train none.txt --out vocab": "none.txt: no such file or folder",
    "tokenizer show none text": "none: no such tokenizer",
    "corpus build none.txt --tokenizer none --out store": "none: no such tokenizer",
    "corpus show none": "none: no such token store",
    "pretrain none.yaml": "none.yaml: no such config file",
    "pretrain cpu/albert-tny --out run": "did you mean 'cpu/albert-tiny'",
    "pretrain cpu/albert-tiny --out run": "data.stores: name at least one token store",
    "pretrain cpu/albert-tiny --set data.stores=[none] --set data.tokenizer=none --out run": "none: no such tokenizer",
    "plan none.yaml": "none.yaml: no such config file",
    "plan ./none": "./none: no such folder",
    "finetune --task sst-3": "unknown task 'sst-3'",
    "finetune --task classification --train none.csv --dev none.csv": "none.csv: no such file",
    "finetune --task sst-2 --data ./none": "./none: no such file or folder",
    "finetune --task sst-2 --model ./none": "./none: no such folder",
    "finetune --config none.yaml": "none.yaml: no such config file",
    "evaluate ./none --text none.txt": "./none: no such folder",
    "evaluate no-one/nothing --text none.txt": "HF_HUB_OFFLINE is set, so",
    "evaluate ./none --data none.csv": "none.csv: no such file",
    "baseline --task classification --train none.csv --dev none.csv": "none.csv: no such file",
    "baseline --task masked-lm --train-text none.txt --text dev.txt --model ./none": "none.txt: no such file",
    "predict fill-mask [MASK] --model ./none": "./none: no such folder",
    "predict fill-mask [MASK] --model no-one/nothing": "no such folder, and not in the Hub's cache",
    "predict classify --file none.txt": "none.txt: no such file",
    "report none": "none: no such folder",
    "reproduce tabel5": "did you mean 'table5'",
    "reproduce table5 --scale small": "--scale: 'small' is not one of",
    "reproduce table5 --store none --tokenizer none": "none: no such file",
    "bench pretrain albert-bse": "did you mean 'albert-base'",
    **{
        f"{command} file/x": "file/x: cannot write:"
        for command in (
            "bench pretrain albert-tiny --out",
            "convert MODEL",
            "corpus build file --tokenizer none --out",
            "corpus generate --out",
            "evaluate MODEL --data file --predictions",
            "export MODEL --out",
            "finetune --task classification --train file --out",
            "pretrain cpu/albert-tiny --out",
            "quickstart --out",
            "reproduce table5 --out",
            "tokenizer train file --out",
        )
    },
    "bench pretrain albert-tiny --out MODEL": "MODEL: is a folder; name a file in it",
    "params ./none": "./none: no such folder",
    "convert ./none out": "./none: no such folder",
    "verify ./none": "./none: no such folder",
    "export ./none": "./none: no such folder",
    "export no-one/nothing": "(`hf download no-one/nothing --local-dir FOLDER`)",
    "serve defualt": "did you mean 'default'?",
    "serve ./none": "./none: no such folder",
    "serve --set queue_requests=0": "queue_requests: must be >= 1",
    "quickstart --steps 0": "--steps",
}


def run_all(lines: list[list[str]], folder: object) -> list[tuple[int, str, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(lines)], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_help_of_every_command_loads_nothing_heavy(tmp_path):
    commands = list(list_commands())
    assert len(commands) > 25
    for words, (code, said, heavy) in zip(
        commands, run_all([[*words, "--help"] for words in commands], tmp_path), strict=True
    ):
        assert (code, heavy) == (0, []), words
        assert f"Usage: litebert {' '.join(words)}" in said
        assert len(said.split("\n\n")) > 1, f"{words}: no word about what it does"


def run_alone(*line: str) -> tuple[str, list[str]]:
    """What one command says in a process of its own, and the modules that it leaves loaded."""
    code = f"import sys\nfrom litebert.cli import main\ntry: main({line})\nexcept SystemExit: print(list(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, _, modules = done.stdout.rstrip().rpartition("\n")
    return said, ast.literal_eval(modules)


def test_help_loads_the_command_line_alone():
    _, loaded = run_alone("--help")
    assert "litebert.cli.predict" in loaded
    assert not {*HEAVY, "numpy", "yaml", "sentencepiece", "pyarrow", "pydantic", "asyncio"} & {*loaded}


def test_fill_mask_loads_what_it_needs():
    said, loaded = run_alone("predict", "fill-mask", "--json", "the sky is [MASK].")
    assert json.loads(said)["masks"]
    assert "torch" in loaded
    assert sorted({*NEEDLESS} & {*loaded}) == []


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each mistake was answered with."""
    lines = [line.split() for line in MISTAKES]
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "file").write_text("not a folder")
    (folder / "MODEL").mkdir()
    return dict(zip(MISTAKES, run_all(lines, folder), strict=True))


def test_a_folder_that_one_may_not_write_in(cli, tmp_path, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and access(path, mode))  # root may anything
    result = cli("bench", "pretrain", "albert-tiny", "--out", tmp_path / "new" / "result.json")
    assert result.code == 2
    assert f"result.json: cannot write: no permission in {tmp_path}" in result.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_told_before_torch_is_loaded(told, line):
    code, said, heavy = told[line]
    assert code == 2
    assert MISTAKES[line] in " ".join(said.split())
    assert "Traceback" not in said
    assert heavy == []
