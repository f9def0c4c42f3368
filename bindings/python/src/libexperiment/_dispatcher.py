"""The one thread on which callbacks are called. It starts with the first fetch that has one."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from contextlib import suppress
from typing import Any, Callable

from . import _logs
from ._client import Client, new_completions
from ._library import NO_LIMIT, Owned, lib
from .errors import ClientClosedError

#: Called with the pending fetch, which stays the dispatcher's, once it is over.
Tell = Callable[[int], None]
#: Starts a fetch into these completions, under this number.
Start = Callable[[int, int], None]


class _Dispatcher:
    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._numbers = itertools.count(1)
        # With the client, which must not go while its fetch runs: that would end the fetch.
        self._pending: dict[int, tuple[Tell, Client]] = {}
        self._finishing = False
        self._completions: Owned | None = None

    def start(self, start: Start, tell: Tell, client: Client) -> None:
        if self._finishing:
            raise ClientClosedError("the interpreter is exiting")
        completions = self._running()
        number = next(self._numbers)
        self._pending[number] = (tell, client)
        try:
            start(completions, number)
        except BaseException:
            self._ended(number)
            raise

    def finish(self) -> None:
        """Waits until everybody was told, and starts no more."""
        self._finishing = True
        with self._lock:
            self._lock.wait_for(lambda: not self._pending)

    def _running(self) -> int:
        with self._lock:
            if self._completions is None:
                completions = new_completions()
                # A daemon: it waits inside the library for ever, and _exit sees to the rest.
                threading.Thread(
                    target=self._run, args=(completions,), name="libexperiment", daemon=True
                ).start()
                self._completions = completions
            return self._completions.native

    def _run(self, owned: Owned) -> None:
        completions = owned.native
        # In a child that a callback forked, the wait is canceled, and the thread ends.
        while lib.exp_completions_wait(completions, NO_LIMIT) == 0:
            _logs.flush()
            pending = lib.exp_completions_next(completions)
            if pending:
                self._tell(pending)

    def _tell(self, pending: int) -> None:
        number = lib.exp_pending_user_data(pending)
        try:
            # None, if a signal's exception ended its start after it had begun.
            tell, client = self._pending.get(number, (None, None))
            if tell and client:
                _tell(tell, pending, client.logger)
        finally:
            lib.exp_free(pending)
            self._ended(number)

    def _ended(self, number: int) -> None:
        with self._lock:
            self._pending.pop(number, None)
            self._lock.notify_all()


def _tell(tell: Tell, pending: int, logger: logging.Logger) -> None:
    try:
        tell(pending)
    except BaseException:  # of the callback; the others are to be told all the same
        with suppress(Exception):
            logger.exception("the callback of a fetch raised")


_dispatcher = _Dispatcher()
# Never freed: in the child a thread of the parent may stand inside of them.
_inherited: list[Any] = []


def _in_child() -> None:
    """Callbacks stay the parent's; the child begins anew when it first needs to."""
    global _dispatcher
    _inherited.append(_dispatcher)
    _dispatcher = _Dispatcher()


os.register_at_fork(after_in_child=_in_child)


def dispatch(start: Start, tell: Tell, client: Client) -> None:
    """Starts a fetch. `tell` is called once if this returns, never if it raises."""
    _dispatcher.start(start, tell, client)


def finish() -> None:
    """Waits until every callback that is due has returned."""
    _dispatcher.finish()
