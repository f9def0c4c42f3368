"""The client that blocks, and calls back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator
from ctypes import c_void_p
from types import TracebackType
from typing import Callable, TypeVar

from . import _dispatcher, _exit, _hosts, _interrupt, _logs, _process
from ._client import Client, new_completions, taken_variants
from ._fetch import fetch
from ._library import Owned, lib
from .errors import FetchCanceledError, FetchError, Status, error_of
from .options import FetchOptions, new_options
from .user import User, encoded
from .variant import (
    Read,
    Variant,
    Variants,
    at_once,
    by_flag,
    by_flag_deployed,
    free_in_pieces,
    variants_of,
)

T = TypeVar("T")
#: callback(user, variants), or callback(user, {}, error) when the fetch failed.
Callback = Callable[..., object]


# Completions of greenlets that wait for none now.
_idle: list[Owned] = []
# Never freed: in the child a thread of the parent may stand inside of them.
_inherited: list[Owned] = []


def _in_child() -> None:
    _inherited.extend(_idle)
    _idle.clear()


_process.in_child(_in_child)


class RemoteEvaluationClient(Client):
    """Fetches variants over a bounded pool of connections.

    One for the whole program: any number of threads fetch with it at once, and it goes on to work
    in processes that are forked. A context manager that closes it.
    """

    def fetch_v2(
        self, user: User | None, fetch_options: FetchOptions | None = None
    ) -> dict[str, Variant]:
        """Fetches all variants of a user, by flag; blocks no longer than the settings allow.

        Signal handlers go on to run meanwhile, and may raise: Ctrl-C ends the fetch.

        :returns: with `fetch_retries=0`, nothing if the fetch failed but might succeed when made
            again, as in the vendor's SDK; see `fetch_v2_or_raise`
        :raises FetchError: every other failure; with retries, the last one
        """
        try:
            return self._fetch(user, fetch_options, by_flag)
        except FetchError as error:
            return self._or_empty(error)

    def fetch_v2_or_raise(
        self, user: User | None, fetch_options: FetchOptions | None = None
    ) -> Variants:
        """Fetches all variants of a user, and tells how: attempts, times, connection.

        :raises FetchError: every failure, whatever the settings
        """
        return self._fetch(user, fetch_options, variants_of)

    def fetch_async_v2(
        self,
        user: User | None,
        callback: Callback | None = None,
        fetch_options: FetchOptions | None = None,
    ) -> None:
        """Starts to fetch all variants of a user, and returns at once.

        The callback is called exactly once if this returns, never if it raises: as
        `callback(user, variants)`, or as `callback(user, {}, error)` for every failure. Callbacks
        are called one after the other on one thread: what takes long belongs elsewhere. One that
        raises is logged.

        :raises FetchError: if the fetch cannot be started
        """
        self._fetch_async(user, callback, fetch_options, by_flag)

    def fetch(
        self, user: User | None, fetch_options: FetchOptions | None = None
    ) -> dict[str, Variant]:
        """Deprecated: `fetch_v2` without variants that are default or not deployed."""
        warnings.warn("use fetch_v2", DeprecationWarning, stacklevel=2)
        try:
            return self._fetch(user, fetch_options, by_flag_deployed)
        except FetchError as error:
            return self._or_empty(error)

    def fetch_async(
        self,
        user: User | None,
        callback: Callback | None = None,
        fetch_options: FetchOptions | None = None,
    ) -> None:
        """Deprecated: `fetch_async_v2` without variants that are default or not deployed."""
        warnings.warn("use fetch_async_v2", DeprecationWarning, stacklevel=2)
        self._fetch_async(user, callback, fetch_options, by_flag_deployed)

    def close(self, timeout_millis: int = 1000) -> bool:
        """Closes the client: new fetches and those in line fail with ClientClosedError.

        Those that run are waited for, and cut off when the time is over.

        :returns: whether none had to be cut off
        """
        return self._close(timeout_millis)

    def __enter__(self) -> RemoteEvaluationClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _fetch(self, user: User | None, options: FetchOptions | None, read: Read[T]) -> T:
        wait = _hosts.green_wait()
        if wait is not None:
            return self._fetch_green(user, options, read, wait)
        interruption = _interrupt.begin()
        failure = interruption.error_of if interruption else error_of
        native_options, token = None, object()
        try:
            began = time.monotonic()
            json = None if user is None else encoded(user)
            left = self._left(began, options)
            native_options = new_options(options, interruption and interruption.hook, left)
            chosen = native_options or (interruption.options.native if interruption else None)
            read = self._reading(read)
            _exit.enter(token)
            fetched = fetch(
                self._owned.native, json, chosen, lambda native: at_once(read, native), failure
            )
            if interruption:
                interruption.check()
            return fetched
        finally:
            _exit.inside.pop(token, None)
            _exit.end_daemon()
            if native_options:
                lib.exp_free(native_options)
            if interruption:
                _interrupt.end(interruption)
            _logs.flush()

    def _fetch_green(
        self, user: User | None, options: FetchOptions | None, read: Read[T], wait: _hosts.Wait
    ) -> T:
        """Lets other greenlets run meanwhile, and ends the fetch if this one is ended."""
        _process.enter()
        here = _process.current()
        completions = _idle.pop() if _idle else new_completions()
        handle, found = c_void_p(), None
        try:
            self._submit(user, options, completions.native, 0, handle)
            while not found:
                wait(lib.exp_completions_fd(completions.native))
                if _process.current() != here:  # greenlets live on in a child
                    raise FetchCanceledError(
                        "the fetch is that of the process this one was forked from",
                        Status.CANCELED,
                    )
                found = lib.exp_completions_next(completions.native)
            _idle.append(completions)  # there is nothing in them any more
            variants = taken_variants(found)
            return at_once(self._reading(read), variants.native, _hosts.pause)
        finally:
            lib.exp_pending_cancel(handle)
            for native in (handle, found):
                if native:
                    lib.exp_free(native)
            _logs.flush()

    def _fetch_async(
        self,
        user: User | None,
        callback: Callback | None,
        options: FetchOptions | None,
        read: Read[dict[str, Variant]],
    ) -> None:
        def start(completions: int, number: int) -> None:
            self._submit(user, options, completions, number)

        def tell(pending: int) -> Generator[None, None, None]:
            made: dict[str, Variant] = {}
            try:
                fetched = taken_variants(pending)
                variants = yield from self._reading(read)(fetched.native, made)
            except Exception as error:
                yield from free_in_pieces(made)
                if callback is not None:
                    callback(user, {}, error)
            else:
                if callback is not None:
                    callback(user, variants)

        _dispatcher.dispatch(start, tell, self)
