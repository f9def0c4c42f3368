"""What was fetched."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Callable, TypeVar

from ._library import lib, speedups
from .errors import FetchTimeoutError, Phase, Status, timings

T = TypeVar("T")


class Variant:
    """The variant of one flag. Equal to another with the same key, value and payload."""

    __slots__ = ("_parts", "key", "value")

    def __init__(
        self,
        value: str | None = None,
        payload: Any = None,
        key: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        #: The value, as compact JSON if the service sent no string.
        self.value = value
        #: The key of the variant.
        self.key = key
        # Payload and metadata: as JSON, if they were fetched, and behind it as what that says.
        self._parts: list[Any] = [None, (payload, metadata)]

    @property
    def payload(self) -> Any:
        """The payload: any JSON."""
        return self._read()[0]

    @payload.setter
    def payload(self, payload: Any) -> None:
        self._parts = [None, (payload, self.metadata)]

    @property
    def metadata(self) -> Any:
        """What the service tells besides: default, deployed, flagVersion, ..."""
        return self._read()[1]

    @metadata.setter
    def metadata(self, metadata: Any) -> None:
        self._parts = [None, (self.payload, metadata)]

    def _read(self) -> tuple[Any, Any]:
        """Parses them when first asked, as most are never asked for."""
        parts = self._parts
        if len(parts) == 1:
            payload, metadata = (text and _parsed(text) for text in parts[0])
            parts.append((payload, metadata))  # of two threads, both get what the first one made
        return parts[1]  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Variant):
            return NotImplemented
        return (self.key, self.value, self.payload) == (other.key, other.value, other.payload)

    # A payload may be a list or a dict.
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return (
            f"key: {self.key}, value: {self.value}, "
            f"payload: {self.payload}, metadata:{self.metadata}"
        )

    def __repr__(self) -> str:
        return (
            f"Variant(value={self.value!r}, payload={self.payload!r}, "
            f"key={self.key!r}, metadata={self.metadata!r})"
        )


class Variants(Mapping[str, Variant]):
    """The variants of one fetch by flag, in the service's order, and how it was fetched."""

    __slots__ = ("_by_flag", "attempts", "connection_reused", "timings")

    def __init__(
        self,
        by_flag: dict[str, Variant],
        attempts: int = 0,
        timings: dict[Phase, float] | None = None,
        connection_reused: bool = False,
    ) -> None:
        self._by_flag = by_flag
        #: Attempts that the fetch took, the first included.
        self.attempts = attempts
        #: Seconds spent in each phase, all attempts together; phases that took none are left out.
        self.timings: dict[Phase, float] = timings or {}
        #: Whether the last attempt went over a connection that had served before.
        self.connection_reused = connection_reused

    def deployed(self) -> dict[str, Variant]:
        """Those that are deployed and not the default of their flag."""
        return deployed(self._by_flag)

    def __getitem__(self, flag_key: str) -> Variant:
        return self._by_flag[flag_key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_flag)

    def __len__(self) -> int:
        return len(self._by_flag)

    def __repr__(self) -> str:
        return f"Variants({self._by_flag!r})"


def deployed(variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """What the deprecated `fetch` returns; what is not said: not the default, and deployed."""

    def is_deployed(metadata: Any) -> bool:
        if not isinstance(metadata, Mapping):  # the service may send any JSON
            return True
        return metadata.get("default") is not True and metadata.get("deployed") is not False

    return {flag: v for flag, v in variants.items() if is_deployed(v.metadata)}


#: As many as are made before somebody looks at the clock: less than a millisecond's work.
PIECE = 256 if speedups else 64
# What is larger is not read as one JSON.
_FEW, _SHORT = 256, 65536

#: Makes something of a native set of variants, which stays the caller's. It yields between pieces,
#: where others may have a turn, and returns it at last. It raises when the fetch's time is over.
#: What it has made goes into the dict, so that whoever ends it before can free that in pieces, too.
Read = Callable[[int, dict[str, Variant]], Generator[None, None, T]]


#: What one reading may keep a loop or a thread for on which others are served, too.
SHARE_SECONDS = 0.002


def at_once(read: Read[T], native: int, pause: Callable[[], object] | None = None) -> T:
    """What it makes. Between the pieces Python runs signal handlers and other threads.

    :param pause: called after each share of the time
    """
    until = pause and time.monotonic() + SHARE_SECONDS
    made: dict[str, Variant] = {}
    pieces = read(native, made)
    try:
        while True:
            next(pieces)
            if pause and until and time.monotonic() > until:
                pause()
                until = time.monotonic() + SHARE_SECONDS
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except FetchTimeoutError:
        made.clear()  # which the error's frames have, too
        raise


def free_in_pieces(made: dict[str, Variant]) -> Iterator[None]:
    """It is freed when this is at its end."""
    while made:
        for _ in range(min(len(made), 4 * PIECE)):
            made.popitem()
        yield


def by_flag(
    native: int,
    made: dict[str, Variant],
    choose: Callable[[dict[str, Variant]], dict[str, Variant]] | None = None,
) -> Generator[None, None, dict[str, Variant]]:
    """The variants by flag: all, or those of each piece that are chosen."""
    start, count = 0, lib.exp_variants_count(native)
    while True:
        piece = _piece(native, start, count)
        start += len(piece)
        made.update(choose(piece) if choose else piece)
        if start >= count:
            return made
        _check_time(native, made)
        yield


def by_flag_deployed(
    native: int, made: dict[str, Variant]
) -> Generator[None, None, dict[str, Variant]]:
    """Those that are deployed and not the default of their flag."""
    return by_flag(native, made, deployed)


def variants_of(native: int, made: dict[str, Variant]) -> Generator[None, None, Variants]:
    """All, with what is known of the fetch."""
    yield from by_flag(native, made)
    return Variants(
        made,
        lib.exp_variants_attempts(native),
        timings(lib.exp_variants_phase_micros, native),
        bool(lib.exp_variants_connection_reused(native)),
    )


def _check_time(native: int, made: dict[str, Variant]) -> None:
    """Ends it in time to free what was made, which takes about an eighth of a microsecond each."""
    if lib.exp_variants_micros_left(native) > len(made) // 8:
        return
    error = FetchTimeoutError(
        "the answer came, but making its objects took longer than the timeout allows",
        Status.TIMEOUT,
    )
    error.retryable = True
    error.phase = Phase.BODY
    error.attempts = lib.exp_variants_attempts(native)
    error.timings = timings(lib.exp_variants_phase_micros, native)
    error.connection_reused = bool(lib.exp_variants_connection_reused(native))
    raise error


# Of a hundred thousand objects made at once, the garbage collector looks through all again and
# again, for a tenth of a second each time, in which every thread stands still. These hold nothing
# but texts: there is nothing to find. If a program puts a variant of so large a set into its own
# payload, that circle is never freed.
_untrack = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_UnTrack", ctypes.pythonapi))


def _piece(native: int, start: int, count: int) -> dict[str, Variant]:
    if speedups:
        return speedups.by_flag(native, Variant, start, PIECE)
    if count <= _FEW and lib.exp_variants_json_length(native) <= _SHORT:
        # As one JSON: a call for each field takes longer than parsing it here.
        objects = _parsed(lib.exp_variants_json(native).decode())
        return {flag: _variant(native, flag, fields) for flag, fields in objects.items()}
    return dict(
        _variant_at(lib.exp_variants_at(native, i)) for i in range(start, min(start + PIECE, count))
    )


def _variant_at(variant: int) -> tuple[str, Variant]:
    def text(field: str) -> str | None:
        address = getattr(lib, f"exp_variant_{field}")(variant)
        if address is None:
            return None
        length = getattr(lib, f"exp_variant_{field}_length")(variant)
        return ctypes.string_at(address, length).decode()

    made = Variant(text("value"), None, text("key"))
    made._parts = [(text("payload_json"), text("metadata_json"))]
    for one in (made, made._parts, made._parts[0]):
        _untrack(one)
    return text("flag_key") or "", made


def _variant(native: int, flag: str, fields: dict[str, Any]) -> Variant:
    key, value = fields.get("key"), fields.get("value")
    # What is no string becomes text, as it was sent: only the library still knows that.
    if value is not None and type(value) is not str:
        value = _text(native, flag, lib.exp_variant_value, lib.exp_variant_value_length)
    if key is not None and type(key) is not str:
        key = _text(native, flag, lib.exp_variant_key, lib.exp_variant_key_length)
    return Variant(value, fields.get("payload"), key, fields.get("metadata"))


def _text(native: int, flag: str, text: Callable[[Any], int], length: Callable[[Any], int]) -> str:
    flag_key = flag.encode()
    variant = lib.exp_variants_get_n(native, flag_key, len(flag_key))
    return ctypes.string_at(text(variant), length(variant)).decode()


# The library's JSON has nothing around it, for which json.loads would look.
_DECODER = json.JSONDecoder()


def _parsed(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text)[0]
    except ValueError:
        # Of an integer that has more digits than Python is set to read; no payload fails a fetch.
        return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> Any:
    try:
        return int(digits)
    except ValueError:
        return float(digits)
