from typing import Callable, TypeVar

from .variant import Variant

T = TypeVar("T")

def fetch(
    client: int,
    user: bytes | None,
    options: int | None,
    read: Callable[[int], T],
    error_of: Callable[[int], BaseException],
) -> T: ...
def address_of_exp_free() -> int: ...
def by_flag(
    variants: int, variant: type[Variant], start: int, count: int
) -> dict[str, Variant]: ...
