"""A native client for Amplitude Experiment: a fetch always comes back within the time you set."""

from ._library import NO_LIMIT, VERSION
from .aio import AsyncRemoteEvaluationClient
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
