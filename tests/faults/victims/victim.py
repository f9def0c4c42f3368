"""Fetches as it is told, in Python. Orders are read from standard input, JSON by the line, and each is
answered by a line; see ../README.md."""

import json
import logging
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from libexperiment import FetchError, RemoteEvaluationClient, RemoteEvaluationConfig, User

client: Optional[RemoteEvaluationClient] = None


def failure(error: FetchError) -> "dict[str, Any]":
    return {
        "error": str(error.status),
        "http_status": error.status_code or 0,
        "phase": error.phase.name.lower() if error.phase is not None else "none",
        "message": str(error),
    }


def fetch(fields: "dict[str, Any]") -> "dict[str, Any]":
    assert client
    user = User(**fields)
    began = time.monotonic()
    try:
        variants = client.fetch_v2_or_raise(user)
        took = time.monotonic() - began
        nonce = variants["demo-nonce"].payload if "demo-nonce" in variants else None
        came: "dict[str, Any]" = {"variants": {"demo-nonce": {"payload": nonce}}}
    except FetchError as error:
        took = time.monotonic() - began
        came = failure(error)
    return came | {"millis": took * 1000}


def fetch_at_once(users: "list[dict[str, Any]]") -> "dict[str, Any]":
    with ThreadPoolExecutor(len(users)) as threads:
        return {"well": sum("error" not in came for came in threads.map(fetch, users))}


def expect_alarms(how: str) -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.siginterrupt(signal.SIGALRM, how != "restart")


def obey(order: "dict[str, Any]") -> "dict[str, Any]":
    global client
    if "client" in order:
        config = RemoteEvaluationConfig(**{"use_environment_proxy": False, **order["client"]})
        client = RemoteEvaluationClient("key", config)
    elif "user" in order:
        return fetch(order["user"])
    elif "users" in order:
        return fetch_at_once(order["users"])
    elif "close" in order:
        assert client
        client.close()
        client = None
    return {}


logging.disable()
if "FAULTS_ALARMS" in os.environ:
    expect_alarms(os.environ["FAULTS_ALARMS"])
for line in sys.stdin:
    print(json.dumps(obey(json.loads(line))), flush=True)
