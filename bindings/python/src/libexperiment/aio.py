"""The client for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from ctypes import c_void_p
from types import TracebackType
from typing import Any, TypeVar

from . import _exit, _logs, _process
from ._client import Client, new_completions, taken_variants
from ._library import Owned, lib
from .errors import FetchError
from .options import FetchOptions
from .user import User
from .variant import SHARE_SECONDS, Read, Variant, Variants, by_flag, free_in_pieces, variants_of

T = TypeVar("T")
_numbers = itertools.count(1)


class _Receiver:
    """The fetches of one event loop, which watches one descriptor for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pending: dict[int, asyncio.Future[Owned]] = {}
        # When this iteration of the loop has had its share of the making of objects.
        self._until: float | None = None
        self.completions = new_completions()
        _exit.completions.add(self.completions)
        native = self.completions.native
        loop.add_reader(lib.exp_completions_fd(native), self._receive)

    def _receive(self) -> None:
        _exit.stop_daemon()
        pending = lib.exp_completions_next(self.completions.native)
        while pending:
            self._settle(pending)
            pending = lib.exp_completions_next(self.completions.native)
        _logs.flush()

    def _settle(self, pending: int) -> None:
        try:
            # Nobody waits any more for one that was canceled.
            future = self.pending.pop(lib.exp_pending_user_data(pending), None)
            if future is None or future.done():
                return
            try:
                future.set_result(taken_variants(pending))
            except Exception as error:
                future.set_exception(error)
        finally:
            lib.exp_free(pending)

    async def make(self, fetched: Owned, read: Read[T]) -> T:
        """What is made of variants. The loop has turns between the pieces, whoever makes them."""
        loop = asyncio.get_running_loop()
        made: dict[str, Variant] = {}
        pieces = read(fetched.native, made)
        try:
            while True:
                while self._has_had_its_share(loop):
                    await asyncio.sleep(0)
                next(pieces)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except BaseException:
            # Late, or its task was canceled. What nobody will have is freed in pieces, too.
            _free(made, loop)
            raise

    def _has_had_its_share(self, loop: asyncio.AbstractEventLoop) -> bool:
        now = time.monotonic()
        if self._until is None:
            self._until = now + SHARE_SECONDS
            loop.call_soon(self._begin_iteration)
        return now > self._until

    def _begin_iteration(self) -> None:
        self._until = None


def _free(made: dict[str, Variant], loop: asyncio.AbstractEventLoop) -> None:
    for _ in free_in_pieces(made):
        if not loop.is_closed():
            loop.call_soon(_free, made, loop)
            break


class _Receivers:
    """One for each loop, as long as there is the loop.

    The loop alone holds it. It holds the loop, too, by the futures of fetches that are not over, so
    that a loop closed in the middle of one would never go if anything else held the receiver.
    """

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Receiver]]
        self._by_loop = weakref.WeakKeyDictionary()

    def of(self, loop: asyncio.AbstractEventLoop) -> _Receiver:
        known = self._by_loop.get(loop)
        receiver = None if known is None else known()
        if receiver is None:
            receiver = _Receiver(loop)
            self._by_loop[loop] = weakref.ref(receiver)
        return receiver

    def all(self) -> list[_Receiver | None]:
        return [known() for known in self._by_loop.values()]


_receivers = _Receivers()
# Never freed: in the child a thread of the parent may stand inside of them.
_inherited: list[Any] = []


def _in_child() -> None:
    """Loops, and what they wait for, stay the parent's."""
    global _receivers
    _inherited.extend(_receivers.all())
    _receivers = _Receivers()


_process.in_child(_in_child)


class AsyncRemoteEvaluationClient(Client):
    """Fetches variants without blocking, and without threads of Python.

    Used by any number of event loops, in any threads; also by uvloop's. Canceling a task ends its
    fetch. An async context manager that closes it.
    """

    async def fetch_v2(
        self, user: User | None, fetch_options: FetchOptions | None = None
    ) -> dict[str, Variant]:
        """Fetches all variants of a user, by flag.

        :returns: with `fetch_retries=0`, nothing if the fetch failed but might succeed when made
            again, as in the vendor's SDK; see `fetch_v2_or_raise`
        :raises FetchError: every other failure; with retries, the last one
        """
        try:
            return await self._fetch(user, fetch_options, by_flag)
        except FetchError as error:
            return self._or_empty(error)

    async def fetch(
        self, user: User | None, fetch_options: FetchOptions | None = None
    ) -> dict[str, Variant]:
        """The same as `fetch_v2`: this client has no past in which `fetch` left variants out."""
        return await self.fetch_v2(user, fetch_options)

    async def fetch_v2_or_raise(
        self, user: User | None, fetch_options: FetchOptions | None = None
    ) -> Variants:
        """Fetches all variants of a user, and tells how: attempts, times, connection.

        :raises FetchError: every failure, whatever the settings
        """
        return await self._fetch(user, fetch_options, variants_of)

    async def close(self, timeout_millis: int = 1000) -> bool:
        """Closes the client: new fetches and those in line fail with ClientClosedError.

        Those that run are waited for, on a thread of the loop's executor, and cut off when the time
        is over.

        :returns: whether none had to be cut off
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._close, timeout_millis)

    async def __aenter__(self) -> AsyncRemoteEvaluationClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _fetch(self, user: User | None, options: FetchOptions | None, read: Read[T]) -> T:
        loop = asyncio.get_running_loop()
        _process.enter()
        receiver, number = _receivers.of(loop), next(_numbers)
        future: asyncio.Future[Owned] = loop.create_future()
        pending = c_void_p()
        receiver.pending[number] = future
        try:
            self._submit(user, options, receiver.completions.native, number, pending)
            return await receiver.make(await future, self._reading(read))
        finally:
            receiver.pending.pop(number, None)
            # Whatever ended the wait, a canceled task too; does nothing to a fetch that is over.
            lib.exp_pending_cancel(pending)
            lib.exp_free(pending)
