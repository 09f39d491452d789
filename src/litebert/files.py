"""Atomic writes, locks and checksums: a crash at any moment leaves a file in its old state or its new one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def write_atomic(path: Path | str, data: bytes | str) -> None:
    """Replace a file atomically: the old content stays until the new content is safely on disk."""
    path = Path(path)
    if isinstance(data, str):
        data = data.encode("utf-8")
    with naming(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with naming(path, temporary):
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def staged_folder(target: Path | str, keep: Callable[[str], bool] = lambda name: True) -> Iterator[Path]:
    """Yield a temporary folder to fill, then replace `target` with it in one step.

    Top-level entries of an existing `target` that were not rewritten are carried over if `keep(name)` is true.
    If the body raises, `target` is untouched. If `target` is a link, the folder it points to is replaced.
    """
    target = Path(target).resolve()
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{target} is a file, expected a folder or a new path")
    target.parent.mkdir(parents=True, exist_ok=True)
    with naming(target):
        staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        with naming(target, staging):
            yield staging
            if target.exists():
                for entry in target.iterdir():
                    if keep(entry.name) and not (staging / entry.name).exists():
                        _link_tree(entry, staging / entry.name)
            for file in staging.rglob("*"):
                if file.is_file():
                    _sync(file)
            sync_folder(staging)
            os.chmod(staging, 0o777 & ~_umask())
            _swap_in(staging, target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def hold_lock(path: Path, *, shared: bool = False, wait: bool = False) -> Iterator[None]:
    """Hold a lock file until the block ends or the process dies; BlockingIOError if another process holds it.

    shared: several processes may hold it at once, if all of them pass shared. wait: block until it is free.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    while True:
        with open(path, "ab") as file:
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise
            except OSError:  # a file system without locks
                pass
            if not _is_at(file.fileno(), path):  # the previous holder has removed it in the meantime
                continue
            try:
                yield
            finally:
                if not shared:
                    path.unlink(missing_ok=True)
            return


def file_sha256(path: Path) -> str:
    """The checksum of a file, read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable."""
    with contextlib.suppress(OSError):  # some file systems do not sync folders
        _sync(folder)


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders of killed processes; the caller must hold the folder's lock."""
    for place in (folder, *(entry for entry in folder.iterdir() if entry.is_dir())):
        for rest in place.glob(".*.tmp"):
            if re.fullmatch(r"\..+\.[a-z0-9_]{8}\.tmp", rest.name):  # as tempfile names them
                if rest.is_dir():
                    shutil.rmtree(rest, ignore_errors=True)
                else:
                    rest.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Whether the error means "no space": a full disk, a quota, a limit on file size."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def naming(path: Path, temporary: Path | str | None = None) -> Iterator[None]:
    """Make an error that names no file, or a temporary one, name the file the user knows.

    safetensors reports system errors as text only; they become OSError again here.
    """
    try:
        yield
    except OSError as error:
        ours = temporary is None or error.filename is None or str(error.filename).startswith(str(temporary))
        if ours and error.errno is not None:
            error.filename, error.filename2 = str(path), None
        raise
    except Exception as error:
        code = re.search(r"os error (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _link_tree(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link)
    else:
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _swap_in(staging: Path, target: Path) -> None:
    """Move `staging` to `target`; the old folder ends up at `staging`, to be deleted."""
    if not target.exists():
        os.rename(staging, target)
        return
    if _exchange(staging, target):
        return
    # Without an atomic exchange (not Linux): two renames, with the old folder kept until the end.
    old = staging.with_suffix(".old")
    os.rename(target, old)
    os.rename(staging, target)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths with Linux's renameat2(RENAME_EXCHANGE); False if it is not available."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    at_cwd, rename_exchange = -100, 2
    return bool(renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), rename_exchange) == 0)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
