"""What was fetched."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ._library import lib, speedups
from .errors import Phase, timings


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


def by_flag(native: int) -> dict[str, Variant]:
    """The variants of a native set, which stays the caller's."""
    if speedups:
        return speedups.by_flag(native, Variant)
    # The whole set as one JSON: a call for each field would take longer than parsing it here.
    objects = _parsed(lib.exp_variants_json(native).decode())
    return {flag: _variant(native, flag, fields) for flag, fields in objects.items()}


def variants_of(native: int) -> Variants:
    """The same with what is known of the fetch."""
    return Variants(
        by_flag(native),
        lib.exp_variants_attempts(native),
        timings(lib.exp_variants_phase_micros, native),
        bool(lib.exp_variants_connection_reused(native)),
    )


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
