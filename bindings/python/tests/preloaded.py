"""A WSGI application whose client was used before its workers were forked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from libexperiment import (
    AsyncRemoteEvaluationClient,
    Experiment,
    RemoteEvaluationClient,
    RemoteEvaluationConfig,
    User,
    Variant,
)

CONFIG = RemoteEvaluationConfig(server_url=os.environ["SERVICE"], fetch_timeout_millis=5000)
CLIENT = Experiment.initialize_remote("key", CONFIG)
ASYNCIO: AsyncRemoteEvaluationClient = Experiment.initialize_remote_async("key", CONFIG)


def nonce_of(nonce: str) -> Any:
    """What the service answers to this fetch and no other, in every way."""
    user = User(user_id="u", user_properties={"nonce": nonce})
    told = threading.Event()
    said = ""
    try:
        CLIENT.fetch_async_v2(user, lambda *_: told.set())
    except RuntimeError as error:
        if "WITHOUT_THREADS" not in os.environ:
            raise
        said = f" {error}"
        told.set()
    payload = CLIENT.fetch_v2(user)["demo-nonce"].payload
    if "WITHOUT_ASYNCIO" not in os.environ:
        assert awaited(user)["demo-nonce"].payload == payload
    assert told.wait(5)
    return payload + said


def awaited(user: User) -> dict[str, Variant]:
    loop = asyncio.new_event_loop()  # asyncio.run would take SIGINT from uWSGI for good
    try:
        return loop.run_until_complete(ASYNCIO.fetch_v2(user))
    finally:
        loop.close()


assert nonce_of("master").startswith("master")
if "PENDING" in os.environ:
    HELD = RemoteEvaluationConfig(server_url=os.environ["PENDING"], fetch_timeout_millis=60_000)
    PENDING = RemoteEvaluationClient("key", HELD)
    PENDING.fetch_async_v2(None)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    nonce = environ["PATH_INFO"]
    start_response("200 OK", [])
    return [f"{os.getpid()} {nonce_of(nonce)}".encode()]
