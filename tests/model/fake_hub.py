"""As much of huggingface_hub as uploads and downloads need, with a folder for a server."""

from __future__ import annotations

import fnmatch
import shutil
from pathlib import Path
from types import SimpleNamespace


class FakeHub:
    """HfApi: notes what it is asked for, and copies folders to `place`."""

    place: Path
    calls: list

    def __init__(self, token=None):
        self.token = token

    def create_repo(self, repo_id, private=None, exist_ok=False):
        self.calls.append(("create", repo_id, private, exist_ok, self.token))
        return f"https://hub/{repo_id}"

    def create_branch(self, repo_id, branch, exist_ok=False):
        self.calls.append(("branch", repo_id, branch, exist_ok))

    def upload_folder(self, repo_id, folder_path, revision, commit_message):
        self.calls.append(("upload", repo_id, revision, commit_message))
        shutil.copytree(folder_path, self.place / repo_id)

    def model_info(self, repo_id, revision=None, timeout=None):
        files = [file.name for file in (self.place / repo_id).iterdir()]
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in files])

    @classmethod
    def snapshot_download(cls, repo_id, revision=None, allow_patterns=()):
        """A cache beside the server, with what was asked for."""
        cache = cls.place.parent / "cache" / repo_id
        cache.mkdir(parents=True, exist_ok=True)
        for file in (cls.place / repo_id).iterdir():
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, cache)
        return str(cache)


def use(monkeypatch, place):
    """Put it in the place of the real one."""
    FakeHub.place, FakeHub.calls = place, []
    monkeypatch.setattr("huggingface_hub.HfApi", FakeHub)
    monkeypatch.setattr("huggingface_hub.snapshot_download", FakeHub.snapshot_download)
    return FakeHub
