"""Options of one fetch, and the switch that ends it."""

from __future__ import annotations

from typing import Any

from ._arguments import utf8, whole
from ._library import NO_LIMIT, Owned, lib


class Cancel:
    """A switch that ends the fetches whose options carry it, now and from now on."""

    def __init__(self) -> None:
        self._owned = Owned(lib.exp_cancel_new())

    def fire(self) -> None:
        """Ends them with FetchCanceledError, without waiting for it. From any thread."""
        lib.exp_cancel_fire(self._owned.native)


class FetchOptions:
    """Options of a fetch; used by any number of them."""

    def __init__(
        self,
        tracksAssignment: bool | None = None,
        tracksExposure: bool | None = None,
        flagKeys: list[str] | None = None,
        *,
        deadline_millis: int | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        """Takes what is chosen; None leaves it to the service or the client.

        :param tracksAssignment: whether the service records the assignment
        :param tracksExposure: whether the service records an exposure
        :param flagKeys: the flags to evaluate; none: all
        :param deadline_millis: a bound on the whole fetch; the client's own holds beside it
        :param cancel: ends the fetch when fired
        """
        self.tracksAssignment = tracksAssignment
        self.tracksExposure = tracksExposure
        self.flagKeys = flagKeys
        self.deadline_millis = deadline_millis
        self.cancel = cancel

    def __str__(self) -> str:
        return (
            f"FetchOptions(tracksAssignment={self.tracksAssignment}, "
            f"tracksExposure={self.tracksExposure}, flagKeys={self.flagKeys})"
        )


def new_options(
    options: FetchOptions | None, hook: Any = None, bound_millis: int | None = None
) -> int | None:
    """Options as the library wants them, yours to free; None for None without a bound."""
    if options is None and bound_millis is None:
        return None
    native: int = lib.exp_fetch_options_new()
    try:
        if hook is not None:
            lib.exp_fetch_options_set_interrupt(native, hook, None)
        if options is not None:
            _fill(native, options)
        if bound_millis is not None:
            lib.exp_fetch_options_set_deadline_millis(native, bound_millis)
    except BaseException:
        lib.exp_free(native)
        raise
    return native


def _fill(native: int, options: FetchOptions) -> None:
    """Sets what is chosen. A value that the library refuses is remembered, and fails the fetch."""
    if options.tracksAssignment is not None:
        lib.exp_fetch_options_set_tracks_assignment(native, bool(options.tracksAssignment))
    if options.tracksExposure is not None:
        lib.exp_fetch_options_set_tracks_exposure(native, bool(options.tracksExposure))
    for flag_key in options.flagKeys or ():
        text = utf8("a flag key", flag_key)
        lib.exp_fetch_options_add_flag_key_n(native, text, len(text))
    if options.deadline_millis is not None:
        deadline = whole("deadline_millis", options.deadline_millis, NO_LIMIT)
        lib.exp_fetch_options_set_deadline_millis(native, deadline)
    if options.cancel is not None:
        lib.exp_fetch_options_set_cancel(native, options.cancel._owned.native)
