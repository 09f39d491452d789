"""Atomic files and folders: the old or the new, never half."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors import SafetensorError

from litebert import files
from litebert.files import hold_lock, is_full, staged_folder, sweep, write_atomic


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_atomic(path, "old")
    monkeypatch.setattr(files.os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_is_swapped_as_a_whole(tmp_path):
    target = tmp_path / "folder"
    with staged_folder(target) as staging:
        (staging / "a").write_text("1")
        (staging / "sub").mkdir()
        (staging / "sub" / "b").write_text("2")
        assert not target.exists()
    with staged_folder(target, keep=lambda name: name == "sub") as staging:
        (staging / "c").write_text("3")
    assert sorted(p.name for p in target.iterdir()) == ["c", "sub"]
    assert (target / "sub" / "b").read_text() == "2"
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_link_stays_and_its_folder_is_replaced(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    (tmp_path / "disk").mkdir()
    link = tmp_path / "link"
    link.symlink_to("disk/folder")
    for content in ("1", "2"):  # the first time the folder is not there yet
        with staged_folder(link) as staging:
            (staging / "a").write_text(content)
        assert os.readlink(link) == "disk/folder"
        assert (tmp_path / "disk" / "folder" / "a").read_text() == content
        assert sorted(os.listdir(tmp_path)) == ["disk", "link"]
        assert os.listdir(tmp_path / "disk") == ["folder"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_failing_body_changes_nothing(tmp_path, monkeypatch, exchange):
    if not exchange:  # as on systems without renameat2
        monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    target = tmp_path / "folder"
    with staged_folder(target) as staging:
        (staging / "a").write_text("1")
    with pytest.raises(FileNotFoundError), staged_folder(target) as staging:
        (staging / "missing" / "a").write_text("2")
    assert (target / "a").read_text() == "1"
    with staged_folder(target) as staging:
        (staging / "a").write_text("3")
    assert (target / "a").read_text() == "3"
    assert os.listdir(tmp_path) == ["folder"]


def test_permissions_follow_the_umask(tmp_path):
    write_atomic(tmp_path / "x", b"1")
    with staged_folder(tmp_path / "f"):
        pass
    plain = tmp_path / "plain"
    plain.write_text("1")
    assert (tmp_path / "x").stat().st_mode == plain.stat().st_mode
    (tmp_path / "dir").mkdir()
    assert (tmp_path / "f").stat().st_mode == (tmp_path / "dir").stat().st_mode


WRITER = """
import sys
from pathlib import Path
from litebert.files import staged_folder
target, count = Path(sys.argv[1]), 0
while True:
    count += 1
    with staged_folder(target) as staging:
        for name in ("a", "b", "c"):
            (staging / name).write_text(str(count) * 1000)
    print(count, flush=True)
"""


def test_sigkill_at_any_moment_leaves_a_whole_folder(tmp_path):
    target = tmp_path / "folder"
    for delay in (0.0, 0.003, 0.011, 0.02, 0.031):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, target], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        contents = {(target / name).read_text() for name in ("a", "b", "c")}
        assert len(contents) == 1


def test_a_lock_lets_one_in(tmp_path):
    path = tmp_path / ".lock"
    with hold_lock(path):
        with pytest.raises(BlockingIOError), hold_lock(path):
            raise AssertionError("two are in here")
        assert path.exists()
    assert not path.exists()
    with hold_lock(path):
        assert path.exists()


def test_a_lock_that_was_opened_before_the_last_one_let_go_is_no_lock(tmp_path, monkeypatch):
    # Opened here, then locked and removed by somebody else: holding the nameless file would keep nobody out.
    path, opened = tmp_path / ".lock", []
    is_at = files._is_at

    def once_removed(handle: int, path) -> bool:
        if not opened:
            path.unlink()
        opened.append(handle)
        return is_at(handle, path)

    monkeypatch.setattr(files, "_is_at", once_removed)
    with hold_lock(path):
        assert len(opened) == 2
        with pytest.raises(BlockingIOError), hold_lock(path):
            raise AssertionError("two are in here")


def test_what_cannot_be_written_is_named_as_people_know_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(tmp_path / "nowhere" / "a.txt", "x")
    assert caught.value.filename == str(tmp_path / "nowhere" / "a.txt")


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(tmp_path / "a", "new")
    assert caught.value.filename == str(tmp_path / "a")
    assert is_full(caught.value)
    assert (tmp_path / "a").read_text() == "old"
    for place in (tmp_path / "model", tmp_path / "run" / "best"):
        with (
            pytest.raises(OSError, match="No space left") as caught,
            staged_folder(place) as staging,
            staged_folder(staging / "inner"),
        ):
            full()
        assert caught.value.filename == str(place)
    with pytest.raises(FileNotFoundError) as caught, staged_folder(tmp_path / "model"):
        (tmp_path / "elsewhere").read_text()  # not ours to rename
    assert caught.value.filename == str(tmp_path / "elsewhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "run"]


def test_errors_that_safetensors_tells_as_text(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught, staged_folder(tmp_path / "model"):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "model"))
    with pytest.raises(SafetensorError), staged_folder(tmp_path / "model"):
        raise SafetensorError("InvalidHeader")


def test_what_killed_processes_left_is_swept(tmp_path):
    run = tmp_path / "run"
    (run / "predictions").mkdir(parents=True)
    begun = (
        "import os, sys\nfrom litebert.files import *\nos.replace = lambda *_: os._exit(9)\nos.rename = os.replace\n"
    )
    endings = [
        f"with staged_folder('{run}/best') as staging: (staging / 'a').write_text('x')",
        f"with staged_folder('{run}/model') as staging: (staging / 'a').write_text('x')",
        f"write_atomic('{run}/run.json', 'x')",
        f"write_atomic('{run}/predictions/dev.jsonl', 'x')",
    ]
    for ending in endings:
        assert subprocess.run([sys.executable, "-c", begun + ending]).returncode == 9
    assert len(list(run.rglob("*.tmp"))) == 4
    mine = [run / ".notes.tmp", run / "kept.tmp", run / ".short.abc.tmp"]  # not as we name them
    for path in mine:
        path.write_text("mine")
    sweep(run)
    assert sorted(run.rglob("*.tmp")) == sorted(mine)
