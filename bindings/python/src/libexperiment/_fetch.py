"""A fetch that blocks, from the user's JSON to what is made of the outcome."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Callable, TypeVar

from ._library import lib, speedups

T = TypeVar("T")
#: Makes something of a native set of variants, which stays the caller's.
Read = Callable[[int], T]


def _fetch(
    client: int,
    user: bytes | None,
    options: int | None,
    read: Read[T],
    error_of: Callable[[int], BaseException],
) -> T:
    """Fetches; what `read` makes of the variants, or raises what `error_of` makes of the error."""
    native_user, variants, error = c_void_p(), c_void_p(), c_void_p()
    try:
        status = 0
        if user is not None:
            status = lib.exp_user_from_json_n(user, len(user), native_user, error)
        status = status or lib.exp_fetch_v2(client, native_user, options, variants, error)
        if status:
            raise error_of(error.value or 0)
        return read(variants.value or 0)
    finally:
        for native in (variants, error, native_user):
            if native:
                lib.exp_free(native)


fetch = speedups.fetch if speedups else _fetch
