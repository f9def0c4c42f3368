"""The end of the interpreter, which no thread inside the library may see.

A thread that wants the GIL of an interpreter that is ending is killed where it stands, or crashes;
inside the library that would take the process down. So when the interpreter exits, callbacks that
are due are called, then all clients are closed, and whatever is inside the library is waited for.
Threads that come back from it by then are daemons, and stay where they are: an error that only
tells of the exit would be noise. What is left is the operating system's to clean up.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Any

from . import _logs
from ._library import Owned, lib
from .errors import ClientClosedError

# How long exiting may wait for what was cut off already. It takes milliseconds.
_PATIENCE_SECONDS = 5.0


#: One token for each call that is inside the library and may log on its own thread. To be left by
#: inside.discard itself: a signal's exception may strike before the first line of any function.
inside: set[object] = set()
_over = False


def enter(token: object) -> None:
    """Counts a call as inside, if it still may be."""
    inside.add(token)
    if _over:
        inside.discard(token)
        stop_daemon()
        raise ClientClosedError("the interpreter is exiting")


def stop_daemon() -> None:
    """Never returns on another thread than the main one when the interpreter is exiting."""
    while _over and threading.get_ident() != threading.main_thread().ident:
        time.sleep(3600)


#: Clients that are there, to be closed.
clients: weakref.WeakSet[Any] = weakref.WeakSet()
#: Where event loops find their outcomes. Each outcome has its client's log.
completions: weakref.WeakSet[Owned] = weakref.WeakSet()


# Kept for ever: in the child a client's log never ends, and one that was dropped there could not be
# told from one that still logs.
_inherited: list[Any] = []


def _numbers(of: list[Any]) -> set[int]:
    return {client._log_number for client in of}


def _drop_outcomes() -> None:
    """Those that no loop will receive, as it is closed or does not run any more."""
    for owned in list(completions):
        while pending := lib.exp_completions_next(owned.native):
            lib.exp_free(pending)


def _wait_until_quiet() -> None:
    """Until no call is inside, and no client that was dropped while it fetched still runs."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        _drop_outcomes()
        _logs.flush()
        if not inside and not _logs.loggers.keys() - _numbers(list(clients)):
            return
        time.sleep(0.002)


def _at_exit() -> None:
    from ._dispatcher import finish

    global _over
    try:
        finish()
    finally:
        _over = Owned.leaks = True
        alive = list(clients)
        for client in alive:
            lib.exp_client_close(client._owned.native, 0)
        for client in alive:
            lib.exp_client_close(client._owned.native, int(_PATIENCE_SECONDS * 1000))
        _wait_until_quiet()


def _in_child() -> None:
    """The threads that were inside are the parent's."""
    inside.clear()
    _inherited[:] = clients
    _logs.in_child(_numbers(_inherited))


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
