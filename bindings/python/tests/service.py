"""The mock service, steered by its standard input and output."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from typing import Any


@dataclass
class Service:
    mock: Mock
    url: str
    number: int | None

    def seen(self) -> dict[str, Any]:
        return self.mock.order({"seen": self.number})

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.number is not None:
            self.mock.order({"stop": self.number})


class Mock:
    def __init__(self) -> None:
        path = os.environ["MOCK_SERVICE"]
        self._lock = threading.Lock()
        self._process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answer()

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return self._answer()

    def play(self, script: dict[str, Any] | str) -> Service:
        """Plays a script; "refused" and "black_hole" are URLs at which there is no service."""
        order: Any = {script: True} if isinstance(script, str) else {"play": script}
        answer = self.order(order)
        return Service(self, answer["url"], answer.get("id"))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer


class Lines(logging.Logger):
    """A logger that keeps what it is told, everything."""

    def __init__(self) -> None:
        super().__init__("lines", logging.DEBUG)
        self.kept: list[tuple[str, str]] = []

    def handle(self, record: logging.LogRecord) -> None:
        self.kept.append((record.levelname, record.getMessage()))


def start_python(code: str, *args: str) -> subprocess.Popen[str]:
    """A program with the package and these tests at hand."""
    # Newer versions of Python warn of every fork beside threads; some tests are about that.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, "-c", textwrap.dedent(code), *args]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )


def heed_ctrl_c() -> None:
    """Python leaves SIGINT ignored where it was: a shell does that to what it runs behind."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_python(code: str, *args: str, seconds: float = 30) -> str:
    """What it prints. It must end in time, with 0 and nothing on its standard error."""
    program = start_python(code, *args)
    try:
        out, err = program.communicate(timeout=seconds)
    finally:
        program.kill()
    assert (program.returncode, err) == (0, ""), f"{program.returncode}: {out}{err}"
    return out
