"""A WSGI application whose client was used before its workers were forked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from libexperiment import Experiment, RemoteEvaluationConfig, User

CLIENT = Experiment.initialize_remote(
    "key", RemoteEvaluationConfig(server_url=os.environ["SERVICE"], fetch_timeout_millis=5000)
)


def nonce_of(nonce: str) -> Any:
    """What the service answers to this fetch and no other."""
    user = User(user_id="u", user_properties={"nonce": nonce})
    told = threading.Event()
    CLIENT.fetch_async_v2(user, lambda *_: told.set())
    payload = CLIENT.fetch_v2(user)["demo-nonce"].payload
    assert told.wait(5)
    return payload


assert nonce_of("master") == "master"


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    nonce = environ["PATH_INFO"]
    start_response("200 OK", [])
    return [f"{os.getpid()} {nonce_of(nonce)}".encode()]
