"""Where clients come from."""

from __future__ import annotations

import threading
from typing import TypeVar

# For what is imported late: typing.get_type_hints finds it, too, by its way over the package.
import libexperiment

from . import _process
from ._client import Client
from .client import RemoteEvaluationClient
from .config import RemoteEvaluationConfig

C = TypeVar("C", bound=Client)

_blocking: dict[str, RemoteEvaluationClient] = {}
_asyncio: dict[str, libexperiment.AsyncRemoteEvaluationClient] = {}
# Recursive, as a signal handler or a handler of the log may ask for a client, too.
_lock = threading.RLock()


def _in_child() -> None:
    """A thread of the parent may have held the old one."""
    global _lock
    _lock = threading.RLock()


_process.in_child(_in_child)


def _one(
    known: dict[str, C], kind: type[C], api_key: str, config: RemoteEvaluationConfig | None
) -> C:
    _process.enter()
    with _lock:
        client = known.get(api_key)
        if client is None or client._closed:
            client = known[api_key] = kind(api_key, config)
            return client
    if config is not None and config is not client.config:
        client.logger.warning("the client for this key exists: its settings stay as they are")
    return client


class Experiment:
    """Makes one client for each key, and finds it again."""

    @staticmethod
    def initialize_remote(
        api_key: str, config: RemoteEvaluationConfig | None = None
    ) -> RemoteEvaluationClient:
        """The client for a server deployment key; a new one if there is none, or it was closed.

        :param config: settings of a new one; one that exists keeps its own, and says so in the log
        :raises InvalidArgumentError: for a key or a setting that cannot be
        """
        return _one(_blocking, RemoteEvaluationClient, api_key, config)

    @staticmethod
    def initialize_remote_async(
        api_key: str, config: RemoteEvaluationConfig | None = None
    ) -> libexperiment.AsyncRemoteEvaluationClient:
        """The same for asyncio."""
        return _one(_asyncio, libexperiment.AsyncRemoteEvaluationClient, api_key, config)
