"""What went wrong. Every error of this package is a FetchError."""

from __future__ import annotations

from ctypes import c_void_p
from enum import IntEnum
from typing import Any, Callable

from ._library import lib


class Status(IntEnum):
    """What came of a call, by the names and numbers of the C header (EXP_ERR_TIMEOUT, ...)."""

    INVALID_ARGUMENT = 1
    TIMEOUT = 2
    NETWORK = 3
    TLS = 4
    HTTP_STATUS = 5
    INVALID_RESPONSE = 6
    CANCELED = 7
    CLOSED = 8
    QUEUE_FULL = 9
    INTERNAL = 10

    def __str__(self) -> str:
        return f"EXP_ERR_{self.name}"


class Phase(IntEnum):
    """What a fetch is doing, by the names and numbers of the C header (EXP_PHASE_POOL, ...)."""

    POOL = 0
    RESOLVE = 1
    CONNECT = 2
    TLS = 3
    SEND = 4
    FIRST_BYTE = 5
    BODY = 6
    BACKOFF = 7


class FetchError(Exception):
    """A fetch, or what belongs to one, failed. str() is one line without key and user."""

    #: What kind of failure it is.
    status: Status
    #: The HTTP status of the last answer; None if there was none.
    status_code: int | None
    #: Attempts made, the first included; 0 if it failed before the first.
    attempts: int
    #: Whether the same call may succeed when made again.
    retryable: bool
    #: Seconds that the service asked to be left alone; None if it did not.
    retry_after: float | None
    #: What the fetch was doing when its time was over; None if it failed otherwise.
    phase: Phase | None
    #: Seconds spent in each phase, all attempts together; phases that took none are left out.
    timings: dict[Phase, float]
    #: Whether the last attempt went over a connection that had served before.
    connection_reused: bool

    def __init__(self, message: str, status: Status = Status.INTERNAL) -> None:
        # Only what every Exception has goes through __init__, so that pickle can make it anew.
        super().__init__(message)
        self.status = status
        self.status_code = None
        self.attempts = 0
        self.retryable = False
        self.retry_after = None
        self.phase = None
        self.timings = {}
        self.connection_reused = False


class FetchTimeoutError(FetchError, TimeoutError):
    """Time was over: waiting for a connection or for the answer."""


class FetchNetworkError(FetchError, ConnectionError):
    """The connection could not be made, or ended."""


class FetchCanceledError(FetchError):
    """A Cancel ended it."""


class ClientClosedError(FetchError):
    """The client is closing, or closed."""


class InvalidArgumentError(FetchError, ValueError):
    """An argument or a setting is not what it must be; the message names it."""

    def __init__(self, message: str, status: Status = Status.INVALID_ARGUMENT) -> None:
        super().__init__(message, status)


_CLASSES: dict[Status, type[FetchError]] = {
    Status.INVALID_ARGUMENT: InvalidArgumentError,
    Status.TIMEOUT: FetchTimeoutError,
    Status.NETWORK: FetchNetworkError,
    Status.CANCELED: FetchCanceledError,
    Status.CLOSED: ClientClosedError,
}


def timings(phase_micros: Callable[[Any, int], int], of: Any) -> dict[Phase, float]:
    """What exp_variants_phase_micros or exp_error_phase_micros tells, in seconds."""
    micros = ((phase, phase_micros(of, phase)) for phase in Phase)
    return {phase: spent / 1e6 for phase, spent in micros if spent}


def error_of(native: Any) -> FetchError:
    """The exception for a native error, which stays the caller's."""
    status = Status(lib.exp_error_status(native))
    message = lib.exp_error_message(native).decode()
    error = _CLASSES.get(status, FetchError)(message, status)
    error.status_code = lib.exp_error_http_status(native) or None
    error.attempts = lib.exp_error_attempts(native)
    error.retryable = bool(lib.exp_error_is_retryable(native))
    error.retry_after = lib.exp_error_retry_after_millis(native) / 1000 or None
    phase = lib.exp_error_phase(native)
    error.phase = Phase(phase) if phase >= 0 else None
    error.timings = timings(lib.exp_error_phase_micros, native)
    error.connection_reused = bool(lib.exp_error_connection_reused(native))
    return error


def taken(native: c_void_p) -> FetchError:
    """The same for an error of ours, which is given up."""
    try:
        return error_of(native)
    finally:
        lib.exp_free(native)
