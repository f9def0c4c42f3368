"""What the blocking and the asyncio client have in common."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Generator
from ctypes import c_void_p
from typing import Any, TypeVar

from . import _exit, _logs, _process
from ._arguments import utf8, whole
from ._library import LONGEST_MILLIS, NO_LIMIT, Owned, lib
from .config import RemoteEvaluationConfig, logger_of, native_config
from .errors import FetchError, FetchTimeoutError, InvalidArgumentError, error_of, taken
from .options import FetchOptions, new_options
from .user import User, encoded
from .variant import Read, Variant

T = TypeVar("T")


class Client:
    """A native client, and what is done with it."""

    def __init__(self, api_key: str, config: RemoteEvaluationConfig | None = None) -> None:
        """Makes a client; opens no connection and starts no thread.

        :param api_key: the server deployment key
        :param config: settings; read now, later changes have no effect
        :raises InvalidArgumentError: for a key or a setting that cannot be
        """
        _process.enter()
        self.config = config or RemoteEvaluationConfig()
        self.logger = logger_of(self.config)
        self._empty_if_retryable = self.config.fetch_retries == 0
        self._worst_case = self.config.worst_case_millis()
        self._closed = False
        self._open(api_key)
        _exit.clients.add(self)

    def _open(self, api_key: str) -> None:
        native, error = c_void_p(), c_void_p()
        key = utf8("api_key", api_key)
        config = native_config(self.config)
        try:
            self._log_number = _logs.attach(config, self.logger)
            lib.exp_client_new_n(key, len(key), config, native, error)
        finally:
            lib.exp_free(config)
        if error:
            raise taken(error)
        self._owned = Owned(native.value or 0)

    def metrics(self) -> dict[str, Any]:
        """What the client has counted so far; times in seconds. From any thread."""
        return json.loads(self._metrics(0))  # type: ignore[no-any-return]

    def metrics_openmetrics(self) -> str:
        """The same as OpenMetrics text, version 1.0.0."""
        return self._metrics(1)

    def _metrics(self, form: int) -> str:
        text, error = c_void_p(), c_void_p()
        lib.exp_client_metrics(self._owned.native, form, text, error)
        if error:
            raise taken(error)
        try:
            return lib.exp_text_value(text).decode()  # type: ignore[no-any-return]
        finally:
            lib.exp_free(text)

    def _close(self, timeout_millis: int) -> bool:
        millis = whole("timeout_millis", timeout_millis, NO_LIMIT)
        if LONGEST_MILLIS < millis < NO_LIMIT:
            raise InvalidArgumentError(
                f"timeout_millis must be 0 to {LONGEST_MILLIS}, or NO_LIMIT, not {millis}"
            )
        self._closed = True
        status = lib.exp_client_close(self._owned.native, millis)
        _logs.flush()
        return not status

    def _submit(
        self,
        user: User | None,
        options: FetchOptions | None,
        completions: int,
        number: int,
        pending: c_void_p | None = None,
    ) -> None:
        """Starts a fetch that will be found in the completions under that number."""
        native_user = native_options = None
        client, error, token = self._owned.native, c_void_p(), object()
        try:
            began = time.monotonic()
            native_user = new_user(user)
            native_options = new_options(options, None, self._left(began, options))
            _exit.enter(token)
            status = lib.exp_fetch_v2_submit(
                client, native_user, native_options, completions, number, pending, error
            )
            if status:
                raise error_of(error)
        finally:
            _exit.inside.pop(token, None)
            _exit.end_daemon()
            for native in (error, native_user, native_options):
                if native:
                    lib.exp_free(native)
            _logs.flush()

    def _left(self, began: float, options: FetchOptions | None) -> int | None:
        """What is left of a fetch's bound if its user took time to write as JSON, else None."""
        spent = int((time.monotonic() - began) * 1000)
        if spent == 0:
            return None
        own = options.deadline_millis if options else None
        bound = self._worst_case
        if own is not None:
            bound = min(bound, whole("deadline_millis", own, NO_LIMIT))
        return max(bound - spent, 0) if bound <= LONGEST_MILLIS else None

    def _reading(self, read: Read[T]) -> Read[T]:
        """The same, which logs it if the time was over: the library has told of a success."""

        def reading(native: int, made: dict[str, Variant]) -> Generator[None, None, T]:
            try:
                return (yield from read(native, made))
            except FetchTimeoutError as error:
                self.logger.warning("fetch: %s", error)
                raise

        return reading

    def _or_empty(self, error: FetchError) -> dict[str, Any]:
        """By the table of the README: no variants for what may pass when no retries are set."""
        if error.retryable and self._empty_if_retryable:
            return {}
        raise error


def new_user(user: User | None) -> int | None:
    """A native user of yours; None for one of whom nothing is known."""
    if user is None:
        return None
    native, error = c_void_p(), c_void_p()
    text = encoded(user)
    if lib.exp_user_from_json_n(text, len(text), native, error):
        raise taken(error)
    return native.value


def taken_variants(pending: int) -> Owned:
    """What a fetch brought that was found in its completions."""
    variants, error = c_void_p(), c_void_p()
    if lib.exp_pending_take(pending, variants, error):
        raise taken(error)
    return Owned(variants.value or 0)


def new_completions() -> Owned:
    """Where submitted fetches are found when they are over."""
    native = lib.exp_completions_new()
    if not native:
        raise OSError(errno.EMFILE, "no descriptor is left for asynchronous fetches")
    return Owned(native)
