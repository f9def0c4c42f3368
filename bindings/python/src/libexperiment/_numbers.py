"""Numbers on their way to C, where ctypes would cut them to size in silence."""

from __future__ import annotations

from .errors import InvalidArgumentError


def whole(name: str, value: float, largest: int) -> int:
    """The value, if C can be given it; the library itself looks at the setting's range."""
    if isinstance(value, (int, float)) and 0 <= value <= largest and value == int(value):
        return int(value)
    raise InvalidArgumentError(f"{name} must be a whole number of at least 0, not {value!r}")
