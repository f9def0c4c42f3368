"""A native client for Amplitude Experiment: a fetch always comes back within the time you set."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._library import NO_LIMIT, VERSION
from .client import RemoteEvaluationClient
from .config import RemoteEvaluationConfig, ServerZone
from .errors import (
    ClientClosedError,
    FetchCanceledError,
    FetchError,
    FetchNetworkError,
    FetchTimeoutError,
    InvalidArgumentError,
    Phase,
    Status,
)
from .factory import Experiment
from .options import Cancel, FetchOptions
from .user import User
from .variant import Variant, Variants

if TYPE_CHECKING:
    from .aio import AsyncRemoteEvaluationClient

__version__ = VERSION

__all__ = [
    "NO_LIMIT",
    "AsyncRemoteEvaluationClient",
    "Cancel",
    "ClientClosedError",
    "Experiment",
    "FetchCanceledError",
    "FetchError",
    "FetchNetworkError",
    "FetchOptions",
    "FetchTimeoutError",
    "InvalidArgumentError",
    "Phase",
    "RemoteEvaluationClient",
    "RemoteEvaluationConfig",
    "ServerZone",
    "Status",
    "User",
    "Variant",
    "Variants",
    "__version__",
]


# asyncio takes longer to import than all the rest, and most programs do not use it.
_LATE = {"aio", "AsyncRemoteEvaluationClient"}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        # Importing it leaves it here, so that neither name is asked for again.
        aio = import_module(".aio", __name__)
        globals()["AsyncRemoteEvaluationClient"] = aio.AsyncRemoteEvaluationClient
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_LATE.union(globals()))
