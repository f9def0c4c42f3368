"""Signals while the main thread sits in a fetch.

Python runs signal handlers between two instructions of the main thread, and in a call of C there
are none. The library asks a hook on the waiting thread, every 50 ms and whenever a signal has
interrupted it; so the hook lets Python run its handlers.

It is a generator, for the sake of one instruction: a handler may raise at the first instruction of
a function, before any `try` of that function, and out of a callback nothing can be raised. A
generator that goes on after its `yield` is within its `try` already.
"""

from __future__ import annotations

import threading
from collections.abc import Generator

from ._library import InterruptHook, Owned, lib
from .errors import error_of


class Interruption:
    """A hook, and what a signal handler raised in it. For one fetch at a time."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        # Twice, as up to Python 3.10 a second signal may strike before the first one's is kept.
        self._watcher = self._watch(self._watch(_going_on()))
        next(self._watcher)
        # send is a function of C: no Python code runs before the generator's.
        self.hook = InterruptHook(self._watcher.send)
        #: With nothing but the hook, for the many fetches that have no options.
        self.options = Owned(lib.exp_fetch_options_new())
        lib.exp_fetch_options_set_interrupt(self.options.native, self.hook, None)

    def check(self) -> None:
        """Raises what a handler raised, if one did."""
        if self.raised is not None:
            raise self.raised

    def error_of(self, native: int) -> BaseException:
        """What a fetch failed for: what a handler raised, before what the library says."""
        if self.raised is not None:
            return self.raised
        if not self.works():
            return RecursionError("no stack was left to run signal handlers on")
        return error_of(native)

    def works(self) -> bool:
        """Whether the hook has not ended: by an exception, or for want of stack before any."""
        frame = self._watcher.gi_frame  # type: ignore[attr-defined]
        return self.raised is None and frame is not None

    def forget(self) -> None:
        """Lets go of what was raised: it has the frames of the fetch, and they have this."""
        self._watcher.close()
        self.raised = None

    def _watch(self, watched: Generator[int, int, None]) -> Generator[int, int, None]:
        try:
            yield from watched
        except GeneratorExit as raised:  # by a handler, or as this is given up
            self.raised = raised
        except BaseException as raised:
            self.raised = raised
            yield 1


def _going_on() -> Generator[int, int, None]:
    while True:
        yield 0


# Those not in use: a handler may itself fetch, while the outer fetch waits.
_idle: list[Interruption] = []


def begin() -> Interruption | None:
    """A hook for this thread, to give back by `end`; None where no signal handler ever runs."""
    if threading.get_ident() != threading.main_thread().ident:
        return None
    try:
        return _idle.pop()
    except IndexError:
        return Interruption()


def end(interruption: Interruption) -> None:
    """Gives it back. One whose hook has ended is used up."""
    if interruption.works():
        _idle.append(interruption)
    else:
        interruption.forget()
