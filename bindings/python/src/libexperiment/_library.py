"""The native library: found, checked and declared once, when the package is imported."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Callable, NoReturn

VERSION = "0.1.0"
SONAME = "libexperiment.so.0"

#: "No limit", where a time in milliseconds may be that.
NO_LIMIT = 0xFFFF_FFFF_FFFF_FFFF
#: The longest time in milliseconds that is one.
LONGEST_MILLIS = 86_400_000

# Called on any thread, a library's own included: what is passed here must run no Python code of
# its own (see _logs.py and _interrupt.py). user_data is always a number, never an address.
LogCallback = CFUNCTYPE(None, c_uint64, c_int, c_char_p, c_size_t)
Finalizer = CFUNCTYPE(None, c_uint64)
InterruptHook = CFUNCTYPE(c_int32, c_uint64)

_OUT = POINTER(c_void_p)

#: Every function that is called through ctypes: what it returns and what it takes.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "exp_version": (c_char_p, []),
    "exp_status_name": (c_char_p, [c_int32]),
    "exp_config_new": (c_void_p, []),
    "exp_config_worst_case_millis": (c_uint64, [c_void_p]),
    "exp_config_set_server_url_n": (c_int, [c_void_p, c_char_p, c_size_t]),
    "exp_config_set_server_zone": (c_int, [c_void_p, c_int32]),
    "exp_config_set_fetch_timeout_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_fetch_pool_acquire_timeout_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_fetch_retries": (c_int, [c_void_p, c_uint32]),
    "exp_config_set_fetch_retry_timeout_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_fetch_retry_backoff_min_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_fetch_retry_backoff_max_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_fetch_retry_backoff_scalar": (c_int, [c_void_p, c_double]),
    "exp_config_set_fetch_retry_jitter": (c_int, [c_void_p, c_int32]),
    "exp_config_set_fetch_retry_budget_percent": (c_int, [c_void_p, c_uint32]),
    "exp_config_set_fetch_deadline_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_connection_pool_max_size": (c_int, [c_void_p, c_uint32]),
    "exp_config_set_connection_idle_timeout_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_connection_max_lifetime_millis": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_max_pending_fetches": (c_int, [c_void_p, c_uint32]),
    "exp_config_set_max_response_bytes": (c_int, [c_void_p, c_uint64]),
    "exp_config_set_ca_file_n": (c_int, [c_void_p, c_char_p, c_size_t]),
    "exp_config_set_proxy_url_n": (c_int, [c_void_p, c_char_p, c_size_t]),
    "exp_config_set_use_environment_proxy": (c_int, [c_void_p, c_int32]),
    "exp_config_set_library_n": (c_int, [c_void_p, c_char_p, c_size_t]),
    "exp_config_set_log_callback": (c_int, [c_void_p, LogCallback, c_void_p, Finalizer, c_int32]),
    "exp_config_error": (c_void_p, [c_void_p]),
    "exp_user_from_json_n": (c_int, [c_char_p, c_size_t, _OUT, _OUT]),
    "exp_fetch_options_new": (c_void_p, []),
    "exp_fetch_options_set_tracks_assignment": (c_int, [c_void_p, c_int32]),
    "exp_fetch_options_set_tracks_exposure": (c_int, [c_void_p, c_int32]),
    "exp_fetch_options_add_flag_key_n": (c_int, [c_void_p, c_char_p, c_size_t]),
    "exp_fetch_options_set_deadline_millis": (c_int, [c_void_p, c_uint64]),
    "exp_fetch_options_set_cancel": (c_int, [c_void_p, c_void_p]),
    "exp_fetch_options_set_interrupt": (c_int, [c_void_p, InterruptHook, c_void_p]),
    "exp_fetch_options_error": (c_void_p, [c_void_p]),
    "exp_cancel_new": (c_void_p, []),
    "exp_cancel_fire": (None, [c_void_p]),
    "exp_client_new_n": (c_int, [c_char_p, c_size_t, c_void_p, _OUT, _OUT]),
    "exp_client_close": (c_int, [c_void_p, c_uint64]),
    "exp_client_metrics": (c_int, [c_void_p, c_int32, _OUT, _OUT]),
    "exp_fetch_v2": (c_int, [c_void_p, c_void_p, c_void_p, _OUT, _OUT]),
    "exp_fetch_v2_submit": (c_int, [c_void_p] * 5 + [_OUT, _OUT]),
    "exp_pending_cancel": (c_int, [c_void_p]),
    "exp_pending_take": (c_int, [c_void_p, _OUT, _OUT]),
    "exp_pending_user_data": (c_void_p, [c_void_p]),
    "exp_completions_new": (c_void_p, []),
    "exp_completions_fd": (c_int, [c_void_p]),
    "exp_completions_next": (c_void_p, [c_void_p]),
    "exp_completions_wait": (c_int, [c_void_p, c_uint64]),
    "exp_variants_json": (c_char_p, [c_void_p]),
    "exp_variants_json_length": (c_size_t, [c_void_p]),
    "exp_variants_get_n": (c_void_p, [c_void_p, c_char_p, c_size_t]),
    "exp_variants_attempts": (c_uint32, [c_void_p]),
    "exp_variants_connection_reused": (c_int32, [c_void_p]),
    "exp_variants_at": (c_void_p, [c_void_p, c_size_t]),
    "exp_variants_count": (c_size_t, [c_void_p]),
    "exp_variants_micros_left": (c_uint64, [c_void_p]),
    "exp_variants_phase_micros": (c_uint64, [c_void_p, c_int32]),
    "exp_variant_flag_key": (c_void_p, [c_void_p]),
    "exp_variant_flag_key_length": (c_size_t, [c_void_p]),
    "exp_variant_key": (c_void_p, [c_void_p]),
    "exp_variant_key_length": (c_size_t, [c_void_p]),
    "exp_variant_value": (c_void_p, [c_void_p]),
    "exp_variant_value_length": (c_size_t, [c_void_p]),
    "exp_variant_payload_json": (c_void_p, [c_void_p]),
    "exp_variant_payload_json_length": (c_size_t, [c_void_p]),
    "exp_variant_metadata_json": (c_void_p, [c_void_p]),
    "exp_variant_metadata_json_length": (c_size_t, [c_void_p]),
    "exp_error_status": (c_int, [c_void_p]),
    "exp_error_message": (c_char_p, [c_void_p]),
    "exp_error_http_status": (c_int32, [c_void_p]),
    "exp_error_attempts": (c_uint32, [c_void_p]),
    "exp_error_is_retryable": (c_int32, [c_void_p]),
    "exp_error_retry_after_millis": (c_uint64, [c_void_p]),
    "exp_error_phase": (c_int, [c_void_p]),
    "exp_error_phase_micros": (c_uint64, [c_void_p, c_int32]),
    "exp_error_connection_reused": (c_int32, [c_void_p]),
    "exp_text_value": (c_char_p, [c_void_p]),
    "exp_free": (None, [c_void_p]),
}

#: Those that wait, or read files: other threads run meanwhile. The rest keeps the GIL, which it
#: would have to get back from threads that work. Most of it takes no time; what takes longer for a
#: large user or set (exp_user_from_json_n, exp_variants_json, exp_free) takes less than Python does
#: to write or read the same. Nobody who wants the GIL keeps it waiting: a lock that is held during
#: a callback is one that only the same fetch waits for, or a close, which has let go.
LETS_OTHERS_RUN = {
    "exp_client_new_n",
    "exp_client_close",
    "exp_completions_wait",
    "exp_fetch_v2",
}


def _path() -> str:
    """Where the library is: EXPERIMENT_LIBRARY and nothing else, the bundled copy, the system's."""
    named = os.environ.get("EXPERIMENT_LIBRARY")
    if named:
        return named
    bundled = os.path.join(os.path.dirname(__file__), SONAME)
    return bundled if os.path.exists(bundled) else SONAME


def _check_version(found: str, path: str) -> None:
    """While the major version is 0, a minor one may break what was."""
    if found.split(".")[:2] != VERSION.split(".")[:2]:
        raise ImportError(
            f"libexperiment {VERSION} for Python needs the native library in version "
            f"{VERSION.rpartition('.')[0]}, but {path} is {found}"
        )


def _refuse_subinterpreters() -> None:
    """What threads and callbacks of the library need would go when such a one ends."""
    python = ctypes.pythonapi
    of = getattr(python, "PyInterpreterState_GetID", None)
    if of is None:  # no CPython: it has one interpreter
        return
    here = python.PyInterpreterState_Get
    here.restype, of.argtypes, of.restype = c_void_p, [c_void_p], ctypes.c_int64
    if of(here()) != 0:
        raise ImportError(
            "libexperiment works in the main interpreter alone, and this is another one: set "
            "WSGIApplicationGroup %{GLOBAL} for mod_wsgi, single-interpreter = true for uWSGI"
        )


def _load() -> ctypes.CDLL:
    _refuse_subinterpreters()
    path = _path()
    try:
        library = ctypes.CDLL(path)
        library.exp_version.restype = c_char_p
        found: bytes = library.exp_version()
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"cannot load the native library {path}: {error}; install a wheel that bundles it, "
            "or name it in EXPERIMENT_LIBRARY"
        ) from error
    _check_version(found.decode(), path)
    quick = ctypes.PyDLL(path, handle=library._handle)
    for name, (returned, taken) in FUNCTIONS.items():
        function = getattr(library if name in LETS_OTHERS_RUN else quick, name)
        function.restype, function.argtypes = returned, taken
        setattr(quick, name, function)
    return quick


lib = _load()


try:
    if os.environ.get("EXPERIMENT_NO_SPEEDUPS"):
        raise ImportError
    from . import _speedups

    if _speedups.address_of_exp_free() != ctypes.cast(lib.exp_free, c_void_p).value:
        raise ImportError
except ImportError:
    _speedups = None  # type: ignore[assignment]
#: Some of what the binding does, in C; None where that cannot be loaded, or finds another library.
speedups = _speedups


class Owned:
    """A native object, given up with this one."""

    #: Set when the interpreter exits: what is there then, the system cleans up.
    leaks = False

    def __init__(self, native: int) -> None:
        self.native = native

    def __reduce__(self) -> NoReturn:
        # A copy, or one in another process, would be freed as well.
        raise TypeError("what the native library owns can neither be copied nor pickled")

    def __del__(self, free: Callable[[int], None] = lib.exp_free) -> None:
        if not self.leaks:
            free(self.native)
