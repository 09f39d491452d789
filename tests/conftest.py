"""What every test needs: one torch thread per worker, no network, no colours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("NO_COLOR", "1")
os.environ.setdefault("COLUMNS", "200")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest
from hypothesis import settings

# A shared machine can be slow for a second; that says nothing about the code.
settings.register_profile("litebert", deadline=None)
settings.load_profile("litebert")


CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# The tests that `make test-fast` leaves out: files, and functions as FILE::FUNCTION (tools/slow_tests.py writes it).
SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").split())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are slow as a whole need not be imported to be left out."""
    fast = config.option.markexpr == "not slow" and collection_path.suffix == ".py"
    return True if fast and collection_path.relative_to(config.rootpath).as_posix() in SLOW else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones."""
    for item in items:
        file, _, rest = item.nodeid.partition("::")
        if file in SLOW or f"{file}::{rest.partition('[')[0]}" in SLOW:
            item.add_marker("slow")


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Run the command line in this process, as main() would: cli("params", "--json") -> result."""
    from litebert.cli import main

    def run(*arguments: object) -> CommandResult:
        import contextlib
        import io

        out, err = io.StringIO(), io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as stop:
                code = int(stop.code or 0)
        return CommandResult(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="module")
def browser():
    """A real Chromium."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        reason = "no Chromium on this machine: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


class CommandResult:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    def assert_refused(self, message: str) -> None:
        """A user's mistake: exit code 2 and a message that says so, however its lines break."""
        assert self.code == 2, self
        assert message in " ".join(self.err.split()), self
        assert "Traceback" not in self.err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
