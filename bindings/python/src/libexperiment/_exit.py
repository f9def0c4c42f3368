"""The end of the interpreter, which no thread inside the library may see.

A thread that wants the GIL of an interpreter that is ending is killed where it stands, or crashes;
inside the library that would take the process down. So when the interpreter exits, callbacks that
are due are called, then all clients are closed, and whatever is inside the library is waited for.
Threads that come back from it by then are daemons. They end by SystemExit: an error that only
tells of the exit would be noise, and if they stopped, nobody would get the locks that they hold.
Event loops do stop: ended, they would tell of their tasks. What is left is the operating system's
to clean up.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import Any

from . import _logs, _process
from ._library import Owned, lib
from .errors import ClientClosedError

# How long exiting may wait for what was cut off already. It takes milliseconds.
_PATIENCE_SECONDS = 5.0


#: A token for each call that is inside the library and may log on its own thread, with its process.
#: To be left by inside.pop itself: a signal's exception may strike before the first line of any
#: function.
inside: dict[object, tuple[int, int]] = {}
_over = False
_exiting = 0


def enter(token: object) -> None:
    """Counts a call as inside, if it still may be."""
    _process.enter()
    inside[token] = _process.current()
    if _over:
        inside.pop(token, None)
        end_daemon()
        raise ClientClosedError("the interpreter is exiting")


def end_daemon() -> None:
    """Ends any thread but the one that exits when the interpreter is exiting."""
    if _is_over_for_this_thread():
        raise SystemExit


def stop_daemon() -> None:
    """The same for an event loop's thread: it never returns."""
    while _is_over_for_this_thread():
        time.sleep(3600)


def _is_over_for_this_thread() -> bool:
    # By the system's number: greenlets have identities of their own.
    return _over and threading.get_native_id() != _exiting


#: Clients that are there, to be closed.
clients: weakref.WeakSet[Any] = weakref.WeakSet()
#: Where event loops find their outcomes. Each outcome has its client's log.
completions: weakref.WeakSet[Owned] = weakref.WeakSet()


# Kept for ever: of these, in a child of fork or at the exit, the log never ends, and one that was
# dropped could not be told from one that still logs.
_kept: list[Any] = []


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
        if _process.current() not in list(inside.values()) and not _logs.loggers.keys() - _numbers(
            _kept
        ):
            return
        time.sleep(0.002)


def _at_exit() -> None:
    from ._dispatcher import finish

    global _over, _exiting
    _process.enter()
    try:
        finish()
    finally:
        _exiting = threading.get_native_id()
        _over = Owned.leaks = True
        _kept.extend(clients)
        for client in _kept:
            lib.exp_client_close(client._owned.native, 0)
        for client in _kept:
            lib.exp_client_close(client._owned.native, int(_PATIENCE_SECONDS * 1000))
        _wait_until_quiet()


def _in_child() -> None:
    """What the clients that are there have to say from now on."""
    _kept[:] = clients
    _logs.in_child(_numbers(_kept))


for _ in range(2):  # a signal handler's exception may end one
    atexit.register(_at_exit)
_process.in_child(_in_child)
