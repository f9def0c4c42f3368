"""The C header is the contract: what the binding declares, and a fetch by nothing else."""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, byref, c_char_p, c_void_p
from pathlib import Path
from typing import Any

import pytest
from conftest import Play

from libexperiment import _library

ROOT = Path(__file__).parents[3]
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "experiment.h").read_text(), flags=re.S)
DECLARED = {
    name: (returned.strip(), [one.strip() for one in taken.split(",")])
    for returned, name, taken in re.findall(
        r"EXP_API\s+([\w\s]+?\*?)\s*\b(exp_\w+)\(([^)]*)\);", HEADER
    )
}
NUMBERS = {
    "void": None,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "exp_status": ctypes.c_int,
    "exp_phase": ctypes.c_int,
}
CALLBACKS = {
    "exp_log_callback": _library.LogCallback,
    "exp_finalizer": _library.Finalizer,
    "exp_interrupt_hook": _library.InterruptHook,
}


def ctype(declared: str) -> Any:
    """The type of ctypes for a type or a parameter of the header."""
    words = declared.replace("const ", "").replace("*", " * ").split()
    if words[0] in CALLBACKS:
        return CALLBACKS[words[0]]
    if words[0] == "exp_fetch_callback":
        return c_void_p
    stars = words.count("*")
    if stars == 0:
        return NUMBERS[words[0]]
    if stars == 2:
        return POINTER(c_void_p)
    return c_char_p if words[0] == "char" else c_void_p


def signature(name: str) -> tuple[Any, list[Any]]:
    returned, taken = DECLARED[name]
    return ctype(returned), [ctype(one) for one in taken if one != "void"]


def test_the_header_is_understood() -> None:
    symbols = (ROOT / "packaging" / "symbols.txt").read_text().split()
    assert sorted(DECLARED) == sorted(symbols)


@pytest.mark.parametrize("name", _library.FUNCTIONS)
def test_a_function_is_declared_as_in_the_header(name: str) -> None:
    returned, taken = signature(name)
    ours, arguments = _library.FUNCTIONS[name]
    # A text that may hold NULs is read by its length, from its address.
    assert ours is returned or (returned is c_char_p and ours is c_void_p)
    assert arguments == taken


def test_what_waits_lets_other_threads_run() -> None:
    waits = {name for name in _library.FUNCTIONS if "timeout_millis" in DECLARED[name][1][-1]}
    waits = {name for name in waits if not name.startswith(("exp_config_", "exp_fetch_options_"))}
    # The one reads files, the other waits as long as the client's settings say.
    waits |= {"exp_client_new_n", "exp_fetch_v2"}
    let_go = {
        name
        for name in _library.FUNCTIONS
        if not getattr(_library.lib, name)._flags_ & ctypes._FUNCFLAG_PYTHONAPI  # type: ignore[attr-defined]
    }
    assert let_go == waits


def test_statuses_and_phases_are_those_of_the_header() -> None:
    from libexperiment import Phase, Status

    numbers = {name: int(number) for name, number in re.findall(r"(EXP_\w+) = (-?\d+)", HEADER)}
    assert {str(s): s.value for s in Status} == {
        k: v for k, v in numbers.items() if k.startswith("EXP_ERR_")
    }
    assert {f"EXP_PHASE_{p.name}": p.value for p in Phase} == {
        k: v for k, v in numbers.items() if k.startswith("EXP_PHASE_") and v >= 0
    }


def test_a_fetch_by_nothing_but_the_header(play: Play) -> None:
    library = ctypes.CDLL(_library._path())
    for name in DECLARED:
        function = getattr(library, name)
        function.restype, function.argtypes = signature(name)

    client, error, variants = c_void_p(), c_void_p(), c_void_p()
    config, user = library.exp_config_new(), library.exp_user_new()
    assert library.exp_config_set_server_url(config, play({}).url.encode()) == 0
    assert library.exp_user_set_user_id(user, b"u") == 0
    assert library.exp_client_new(b"key", config, byref(client), byref(error)) == 0
    assert library.exp_fetch_v2(client, user, None, byref(variants), byref(error)) == 0
    assert library.exp_variants_count(variants) == 4
    assert library.exp_variants_value(variants, b"demo-greeting", b"off") == b"on"
    assert library.exp_client_close(client, 1000) == 0
    assert library.exp_fetch_v2(client, user, None, byref(variants), byref(error)) == 8
    assert library.exp_status_name(library.exp_error_status(error)) == b"EXP_ERR_CLOSED"
    for native in (error, user, client, config):
        library.exp_free(native)
