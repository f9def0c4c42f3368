"""The one thread on which callbacks are called. It starts with the first fetch that has one.

Where threads are greenlets it is one, too, which lets the others run while it waits. It ends when
nothing is pending: one that waits for ever would keep gevent's loop from ever being done.
"""

from __future__ import annotations

import _thread
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Callable

from . import _hosts, _logs, _process
from ._client import Client, new_completions
from ._library import NO_LIMIT, Owned, lib
from .errors import ClientClosedError
from .variant import SHARE_SECONDS

#: Called with the pending fetch, which stays the dispatcher's, once it is over. It yields between
#: pieces of its work, so that nobody is told late because another one has much to be told.
Tell = Callable[[int], Generator[None, None, None]]
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
        self._wait: _hosts.Wait | None = None
        self._runs = False
        self._process = _process.current()
        # What is being told to callbacks.
        self._tellings: deque[Generator[None, None, None]] = deque()

    def start(self, start: Start, tell: Tell, client: Client) -> None:
        if self._finishing:
            raise ClientClosedError("the interpreter is exiting")
        _hosts.refuse_callbacks_without_threads()
        number = next(self._numbers)
        try:
            start(self._running(number, tell, client), number)
        except BaseException:
            self._ended(number)
            raise

    def finish(self) -> None:
        """Waits until everybody was told, and starts no more."""
        self._finishing = True
        with self._lock:
            if self._completions and self._pending:
                self._see_that_it_runs(self._completions)  # a greenlet may have been killed
            self._lock.wait_for(lambda: not self._pending)

    def _running(self, number: int, tell: Tell, client: Client) -> int:
        """The completions that a thread waits for, for a fetch that is pending from now on."""
        with self._lock:
            if self._completions is None:
                self._completions = new_completions()
                self._wait = _hosts.green_wait()
            self._pending[number] = (tell, client)
            self._see_that_it_runs(self._completions)
            return self._completions.native

    def _see_that_it_runs(self, completions: Owned) -> None:
        if not self._runs:
            if self._wait:
                # As no Thread: a greenlet lives on in a child, where threading has forgotten it.
                _thread.start_new_thread(self._run_green, (completions,))
            else:
                # A daemon: it waits inside the library for ever, and _exit sees to the rest.
                threading.Thread(
                    target=self._run, args=(completions,), name="libexperiment", daemon=True
                ).start()
            self._runs = True

    def _run(self, owned: Owned) -> None:
        completions = owned.native
        while self._tellings or lib.exp_completions_wait(completions, NO_LIMIT) == 0:
            if not self._tell_some(completions):
                break

    def _run_green(self, owned: Owned) -> None:
        assert self._wait is not None
        descriptor = lib.exp_completions_fd(owned.native)
        try:
            # A greenlet that has not begun before a fork begins in the child as well.
            while self._pending and self._process == _process.current():
                if self._tellings:
                    _hosts.pause()
                else:
                    self._wait(descriptor)
                if not self._tell_some(owned.native):
                    break
        finally:
            self._runs = False

    def _tell_some(self, completions: int) -> bool:
        """A share of one telling. False in a child that a callback forked: there it ends."""
        _logs.flush()
        while pending := lib.exp_completions_next(completions):
            self._tellings.append(self._tell(pending))
        if self._tellings:
            telling = self._tellings.popleft()
            until = time.monotonic() + SHARE_SECONDS
            for _ in telling:
                if time.monotonic() > until:
                    self._tellings.append(telling)
                    break
        return self._process == _process.current()

    def _tell(self, pending: int) -> Generator[None, None, None]:
        number = lib.exp_pending_user_data(pending)
        try:
            # None, if a signal's exception ended its start after it had begun.
            tell, client = self._pending.get(number, (None, None))
            if tell and client:
                yield from _tell(tell, pending, client.logger)
        finally:
            lib.exp_free(pending)
            self._ended(number)

    def _ended(self, number: int) -> None:
        with self._lock:
            self._pending.pop(number, None)
            self._lock.notify_all()


def _tell(tell: Tell, pending: int, logger: logging.Logger) -> Generator[None, None, None]:
    try:
        yield from tell(pending)
    except BaseException:  # of the callback; the others are to be told all the same
        with suppress(Exception):
            logger.exception("the callback of a fetch raised")


# Made when first needed, when the host has put in place of threads what it likes.
_dispatchers: dict[str, _Dispatcher] = {}
# Never freed: in the child a thread of the parent may stand inside of them.
_inherited: list[Any] = []


def _in_child() -> None:
    """Callbacks stay the parent's; the child begins anew when it first needs to."""
    global _dispatchers
    _inherited.append(_dispatchers)
    _dispatchers = {}


_process.in_child(_in_child)


def _dispatcher() -> _Dispatcher:
    _process.enter()
    # setdefault is one step: of two threads, both get the same.
    return _dispatchers.get("") or _dispatchers.setdefault("", _Dispatcher())


def dispatch(start: Start, tell: Tell, client: Client) -> None:
    """Starts a fetch. `tell` is called once if this returns, never if it raises."""
    _dispatcher().start(start, tell, client)


def finish() -> None:
    """Waits until every callback that is due has returned."""
    _dispatcher().finish()
