"""fetch_async_v2: one thread tells everybody, once."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest
from conftest import HELD, Connect, Play
from service import Lines

from libexperiment import (
    Cancel,
    ClientClosedError,
    FetchCanceledError,
    FetchError,
    FetchOptions,
    FetchTimeoutError,
    User,
)

USER = User(user_id="u")


def test_five_hundred_fetches_share_one_thread(play: Play, connect: Connect) -> None:
    client = connect(play({"keep": "nothing"}))
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.fetch_async_v2(USER, lambda *_: told.put(threading.current_thread()))
    teller = told.get(timeout=5)
    before = threading.active_count()
    for i in range(500):
        user = User(user_id="u", user_properties={"nonce": i})
        client.fetch_async_v2(user, lambda u, v: told.put((threading.current_thread(), u, v)))
    assert threading.active_count() == before
    for _ in range(500):
        thread, user, variants = told.get(timeout=10)
        assert thread is teller is not threading.current_thread()
        assert user.user_properties == {"nonce": variants["demo-nonce"].payload}


def test_a_callback_that_raises_is_called_once_and_logged(play: Play, connect: Connect) -> None:
    lines, calls = Lines(), []
    client = connect(play({}), logger=lines, connection_pool_max_size=1)
    done = threading.Event()

    def callback(*outcome: Any) -> None:
        calls.append(outcome)
        raise SystemExit("of the callback")

    client.fetch_async_v2(USER, callback)
    client.fetch_async_v2(USER, lambda *_: done.set())
    assert done.wait(5)
    assert len(calls) == 1
    assert ("ERROR", "the callback of a fetch raised") in lines.kept


@pytest.mark.parametrize(
    ("script", "settings", "error"),
    [
        ({"answers": [{"status": 503}]}, {}, FetchError),
        ({"answers": [{"status": 404}]}, {}, FetchError),
        (HELD, {"fetch_timeout_millis": 50}, FetchTimeoutError),
    ],
)
def test_every_failure_is_told(
    play: Play, connect: Connect, script: Any, settings: Any, error: type[Exception]
) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    connect(play(script), **settings).fetch_async_v2(USER, lambda *outcome: told.put(outcome))
    user, variants, raised = told.get(timeout=5)
    assert (user, variants) == (USER, {})
    assert isinstance(raised, error)


def test_a_callback_is_not_needed(play: Play, connect: Connect) -> None:
    service = play({})
    client = connect(service)
    client.fetch_async_v2(USER)
    client.fetch_async_v2(USER, None)
    until = time.monotonic() + 5
    while service.seen()["requests_total"] < 2:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_cannot_be_started_is_raised_and_never_told(play: Play, connect: Connect) -> None:
    client = connect(play({}))
    client.close()
    with pytest.raises(ClientClosedError):
        client.fetch_async_v2(USER, lambda *_: pytest.fail("told"))


def test_a_switch_ends_it(play: Play, connect: Connect) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    cancel = Cancel()
    options = FetchOptions(cancel=cancel)
    connect(play(HELD)).fetch_async_v2(USER, lambda *outcome: told.put(outcome), options)
    cancel.fire()
    assert isinstance(told.get(timeout=5)[2], FetchCanceledError)


def test_closing_from_a_callback_does_not_wait_for_itself(play: Play, connect: Connect) -> None:
    client = connect(play({}))
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.fetch_async_v2(USER, lambda *_: told.put(client.close(5000)))
    assert told.get(timeout=4) is True
