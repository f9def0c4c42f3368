"""Arguments on their way to C, where ctypes would cut numbers to size in silence.

What the library itself looks at, like a setting's range, is left to it.
"""

from __future__ import annotations

from contextlib import suppress

from .errors import InvalidArgumentError


def whole(name: str, value: float, largest: int) -> int:
    """A number that C can be given; a float if it is whole."""
    if isinstance(value, (int, float)) and 0 <= value <= largest and value == int(value):
        return int(value)
    raise InvalidArgumentError(f"{name} must be a whole number of at least 0, not {value!r}")


def ratio(name: str, value: float) -> float:
    """A number that need not be whole."""
    with suppress(OverflowError):
        if isinstance(value, (int, float)):
            return float(value)
    raise InvalidArgumentError(f"{name} must be a number, not {value!r}")


def utf8(name: str, value: str) -> bytes:
    """A text that C can be given. The error does not show it: it may be a secret."""
    try:
        return value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidArgumentError(f"{name} must be a text of Unicode characters") from None
