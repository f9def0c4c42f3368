"""The client for asyncio."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest
import uvloop
from conftest import HELD, Play
from service import Service

from libexperiment import (
    AsyncRemoteEvaluationClient,
    Cancel,
    ClientClosedError,
    Experiment,
    FetchCanceledError,
    FetchOptions,
    FetchTimeoutError,
    RemoteEvaluationConfig,
    User,
)

#: Runs a coroutine on a loop of its own.
Runner = Callable[[Coroutine[Any, Any, Any]], Any]


def run_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


@pytest.fixture(params=[asyncio.run, run_uvloop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


def new(service: Service, **settings: Any) -> AsyncRemoteEvaluationClient:
    config = RemoteEvaluationConfig(server_url=service.url, **settings)
    return AsyncRemoteEvaluationClient("test-key", config)


def user(nonce: object) -> User:
    return User(user_id="u", user_properties={"nonce": nonce})


def test_a_thousand_fetches_at_once_need_no_thread(play: Play, run: Runner) -> None:
    async def main() -> None:
        async with new(play({"keep": "nothing"})) as client:
            before = threading.active_count()
            fetches = [asyncio.create_task(client.fetch_v2(user(i))) for i in range(1000)]
            await asyncio.sleep(0)
            assert threading.active_count() == before
            answers = await asyncio.gather(*fetches)
            assert threading.active_count() == before
            assert [answer["demo-nonce"].payload for answer in answers] == list(range(1000))

    run(main())


def test_a_canceled_task_ends_its_fetch(play: Play, run: Runner) -> None:
    async def main() -> None:
        async with new(play(HELD), connection_pool_max_size=1) as client:
            held, waiting = (asyncio.create_task(client.fetch(user(i))) for i in range(2))
            await asyncio.sleep(0.1)
            for task in (waiting, held):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            # The library hears of it at once, without an answer and long before a timeout.
            until = time.monotonic() + 1
            while client.metrics()["failures"]["canceled"] < 2:
                assert time.monotonic() < until
                await asyncio.sleep(0.01)

    run(main())


def test_wait_for_bounds_a_fetch(play: Play, run: Runner) -> None:
    async def main() -> None:
        async with new(play(HELD)) as client:
            began = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.fetch_v2(user(1)), 0.1)
            assert time.monotonic() - began < 0.4

    run(main())


def test_the_loop_is_never_blocked(play: Play, run: Runner) -> None:
    async def main() -> None:
        client = new(play(HELD), fetch_timeout_millis=500)
        fetch = asyncio.create_task(client.fetch_v2_or_raise(user(1)))
        longest = 0.0
        while not fetch.done():
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)
        with pytest.raises(FetchTimeoutError):
            await fetch
        assert longest < 0.3

    run(main())


def test_loops_in_many_threads_share_a_client(play: Play, run: Runner) -> None:
    client = new(play({"keep": "nothing"}))

    async def main(thread: int) -> None:
        nonces = [f"{thread}-{i}" for i in range(100)]
        answers = await asyncio.gather(*(client.fetch_v2(user(nonce)) for nonce in nonces))
        assert [answer["demo-nonce"].payload for answer in answers] == nonces

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda thread: run(main(thread)), range(4)))


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_nothing_of_a_closed_loop_stays(play: Play, run: Runner) -> None:
    client = new(play(HELD))

    async def canceled() -> None:
        task = asyncio.create_task(client.fetch_v2(user(1)))
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    before = descriptors()
    for _ in range(20):
        run(canceled())
    # A pool of eight connections may fill up meanwhile, of two descriptors each. A loop has four.
    assert descriptors() <= before + 16


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nothing_stays_of_a_loop_that_is_closed_while_it_fetches(
    play: Play, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    client = new(play(HELD), connection_pool_max_size=1)

    async def left_behind() -> None:
        task: Any = asyncio.create_task(client.fetch_v2(user(1)))
        task._log_destroy_pending = False
        await asyncio.sleep(0.01)

    def close_amid_a_fetch() -> None:
        loop = new_loop()
        loop.run_until_complete(left_behind())
        loop.close()

    before = descriptors()
    for _ in range(20):
        close_amid_a_fetch()
    # A connection, of two descriptors, and those of uvloop itself. Workers give up the rest.
    until = time.monotonic() + 5
    while descriptors() > before + 4:
        assert time.monotonic() < until


def test_by_the_table_what_may_pass_is_nothing_without_retries(play: Play, run: Runner) -> None:
    async def main() -> None:
        service = play({"answers": [{"status": 503}]})
        async with new(service) as client:
            assert await client.fetch_v2(user(1)) == {}
            assert await client.fetch(user(1)) == {}

    run(main())


def test_a_switch_cancels_it_too(play: Play, run: Runner) -> None:
    async def main() -> None:
        cancel = Cancel()
        async with new(play(HELD)) as client:
            asyncio.get_running_loop().call_later(0.05, cancel.fire)
            with pytest.raises(FetchCanceledError):
                await client.fetch_v2(user(1), FetchOptions(cancel=cancel))

    run(main())


def test_closing_cuts_off_what_does_not_end_in_time(play: Play, run: Runner) -> None:
    async def main() -> None:
        client = new(play(HELD))
        fetch = asyncio.create_task(client.fetch_v2(user(1)))
        await asyncio.sleep(0.05)
        assert not await client.close(50)
        with pytest.raises(ClientClosedError):
            await fetch
        with pytest.raises(ClientClosedError):
            await client.fetch_v2(user(1))

    run(main())


def test_one_client_for_each_key() -> None:
    client = Experiment.initialize_remote_async("one")
    assert Experiment.initialize_remote_async("one") is client
    assert Experiment.initialize_remote_async("other") is not client
