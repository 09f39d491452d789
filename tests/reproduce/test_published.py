"""The reproductions in docs/results: their cells are packed, and still give the published numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from litebert.errors import DataError
from litebert.reproduce.reproduction import load_plans

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "docs" / "results" / "reproduction").iterdir())


def test_the_archives_hold_the_cells_of_their_tables():
    unfinished = {}
    for folder in PUBLISHED:
        record = json.loads((folder / "reproduction.json").read_text())
        wanted = {cell for table in record["tables"].values() for _, _, cell in table["cells"]}
        with tarfile.open(folder / "cells.tar.xz") as packed:
            names = packed.getnames()
        scored = {name.split("/")[1] for name in names if name.endswith("/result.json")}
        assert scored <= wanted, folder
        unfinished[folder.name] = len(wanted - scored)
    # The control was not run for the row of 48 layers (three seeds).
    assert unfinished == {"collapsed": 0, "cpu": 0, "gpu-minutes": 0, "same-depth": 3}


def test_a_report_of_packed_cells_has_the_published_numbers(cli, tmp_path):
    published = ROOT / "docs" / "results" / "reproduction" / "cpu"
    folder = shutil.copytree(published, tmp_path / "cpu", ignore=shutil.ignore_patterns("cells"))
    assert cli("report", folder).code == 0
    assert (folder / "table5.json").read_text() == (published / "table5.json").read_text()
    assert "Trained on SOP, a model solves SOP" in (folder / "report.html").read_text()
    (folder / "cells.tar.xz").unlink()  # the cells are folders now
    assert cli("report", folder).code == 0


def test_a_damaged_archive_is_told(tmp_path):
    folder = shutil.copytree(PUBLISHED[0], tmp_path / "one", ignore=shutil.ignore_patterns("cells"))
    archive = folder / "cells.tar.xz"
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 255
    for damaged in (bytes(content), bytes(content[:1000]), b"", b"not an archive"):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match=r"cells\.tar\.xz: damaged"):
            load_plans(folder)
        assert not (folder / "cells").exists()


def test_packing_gives_the_same_bytes_and_opens_again(tmp_path):
    for copy in ("a", "b"):
        (tmp_path / copy / "cells" / "one" / "run").mkdir(parents=True)
        (tmp_path / copy / "cells" / "one" / "cell.json").write_text("{}")
        (tmp_path / copy / "cells" / "one" / "run" / "metrics.jsonl").write_text("line\n" * 100)
        tool = [sys.executable, str(ROOT / "tools" / "pack_results.py"), str(tmp_path / copy / "cells")]
        subprocess.run(tool, check=True, capture_output=True)
        assert not (tmp_path / copy / "cells").exists()
    assert (tmp_path / "a" / "cells.tar.xz").read_bytes() == (tmp_path / "b" / "cells.tar.xz").read_bytes()
    with tarfile.open(tmp_path / "a" / "cells.tar.xz") as packed:
        assert packed.extractfile("cells/one/run/metrics.jsonl").read() == b"line\n" * 100
