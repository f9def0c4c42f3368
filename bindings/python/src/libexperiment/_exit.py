"""The end of the interpreter, which no thread of the library may see.

A thread that wants the GIL of an interpreter that is ending is killed where it stands, or crashes;
inside the library that would take the process down. So when the interpreter exits, callbacks that
are due are delivered, all clients are closed, and whatever is inside the library is waited for.
What is left is the operating system's to clean up.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import Any

from . import _logs
from ._library import lib
from .errors import ClientClosedError

# How long exiting may wait for what was cut off already. It takes milliseconds.
_PATIENCE_SECONDS = 5.0


class _Inside:
    """Counts the calls that may log on their own thread; append and pop are atomic, += is not."""

    def __init__(self) -> None:
        self.calls: list[None] = []
        self.refuses = False

    def __enter__(self) -> None:
        self.calls.append(None)
        if self.refuses:
            self.calls.pop()
            raise ClientClosedError("the interpreter is exiting")

    def __exit__(self, *_: object) -> None:
        self.calls.pop()


inside = _Inside()
#: Clients that are there, to be closed.
clients: weakref.WeakSet[Any] = weakref.WeakSet()


def _wait_until_quiet() -> None:
    """Until no call is inside, and no client that was dropped while it fetched still runs."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        _logs.flush()
        kept = {client._log_number for client in list(clients)}
        if not inside.calls and not _logs.loggers.keys() - kept:
            return
        time.sleep(0.002)


def _at_exit() -> None:
    from ._dispatcher import finish

    inside.refuses = True
    try:
        finish()
    finally:
        alive = list(clients)
        for client in alive:
            lib.exp_client_close(client._native, 0)
        for client in alive:
            lib.exp_client_close(client._native, int(_PATIENCE_SECONDS * 1000))
        _wait_until_quiet()


def _in_child() -> None:
    """The threads that were inside are the parent's."""
    inside.calls.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
