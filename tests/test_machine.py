from __future__ import annotations

import os
import subprocess
import sys

import pytest

from litebert import machine
from litebert.machine import announces_bf16, share_cores, usable_cores, usable_cpus


def test_usable_cpus_reads_affinity_and_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for text, expected in [("max 100000", 64), ("250000 100000", 3), ("50000 100000", 1), ("", 64)]:
        monkeypatch.setattr(machine.Path, "read_text", lambda path, text=text: text)
        assert usable_cpus() == expected


def test_two_cpus_of_one_core_count_once(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CPU_FOLDER", tmp_path)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 4, 5, 6}, raising=False)
    assert usable_cores() == 6  # nothing is told
    for number in range(8):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    assert usable_cores() == 3
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)  # a quota
    assert usable_cores() == 2


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 sse2\n", True),
        ("flags\t\t: fpu amx_tile amx_bf16\n", True),
        ("Features\t: fp asimd bf16 i8mm\n", True),
        ("flags\t\t: fpu avx512f\n", False),
        ("", False),
    ],
)
def test_which_processors_announce_bf16(monkeypatch, lines, expected):
    monkeypatch.setattr(machine.Path, "read_text", lambda path, encoding: lines)
    assert announces_bf16() is expected


SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def test_commands_set_how_openmp_waits_before_torch_is_loaded():
    code = (
        "import os, sys; import litebert.cli; assert 'torch' not in sys.modules\n"
        "litebert.cli.app = lambda **_: None\n"
        "try: litebert.cli.main([])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules; import torch"
    )
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment["OMP_DISPLAY_ENV"] = "verbose"
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if "GOMP_" not in told.stderr:
        pytest.skip("torch has another OpenMP here")
    assert "GOMP_SPINCOUNT = '1000'" in told.stderr


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_user_says_about_waiting_wins(monkeypatch, name):
    for other in SETTINGS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "7")
    share_cores()
    assert {other: os.environ.get(other) for other in SETTINGS} == {**dict.fromkeys(SETTINGS), name: "7"}
