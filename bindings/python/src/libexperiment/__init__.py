"""A native client for Amplitude Experiment: a fetch always comes back within the time you set."""

from __future__ import annotations

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


def __getattr__(name: str) -> Any:
    # asyncio takes longer to import than all the rest, and most programs do not use it.
    if name == "AsyncRemoteEvaluationClient":
        from .aio import AsyncRemoteEvaluationClient

        return AsyncRemoteEvaluationClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
