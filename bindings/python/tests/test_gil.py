"""The library calls back with locks held, and most calls keep the GIL: nobody waits for ever."""

from __future__ import annotations

from typing import Any

from conftest import Play
from service import run_python

EVERYTHING_AT_ONCE = """
    import asyncio, contextlib, faulthandler, logging, signal, sys, threading, time
    from libexperiment import *

    # By C alone, and where everybody stands: a thread that waits with the GIL held stops Python.
    faulthandler.dump_traceback_later(40, exit=True)
    URL = sys.argv[1]
    USER = User(user_id="u")
    lines = []

    class Works(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
            sum(range(1000))

    logger = logging.Logger("debug", logging.DEBUG)
    logger.addHandler(Works())

    def new(kind):
        settings = {"connection_pool_max_size": 4, "fetch_timeout_millis": 5000}
        return kind("key", RemoteEvaluationConfig(server_url=URL, logger=logger, **settings))

    def until_closed(call):
        with contextlib.suppress(ClientClosedError):
            while True:
                call()
                calls.append(call)

    def submit(client, free):
        free.acquire()
        client.fetch_async_v2(USER, lambda *_: free.release())

    def count(client):
        if client.metrics() and client._closed:
            raise ClientClosedError("closed")

    async def awaited():
        # Freed while workers have its connections, and tell of what was canceled.
        clients = (new(AsyncRemoteEvaluationClient) for _ in range(4))
        tasks = [asyncio.create_task(client.fetch_v2(USER)) for client in clients]
        await asyncio.wait(tasks, timeout=0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def come_and_go(client):
        asyncio.run(awaited())
        count(client)

    def close(client, millis):
        while not set(calls) >= set(what):  # until everybody has come to it
            time.sleep(0.01)
        client.close(millis)

    for millis in [0, 1, 1000] * 3:
        client, calls, free = new(RemoteEvaluationClient), [], threading.Semaphore(20)
        # In the middle of a fetch, inside of the library's hook.
        signal.signal(signal.SIGALRM, lambda *_: client.metrics())
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        what = [lambda: client.fetch_v2(USER)] * 4
        what += [lambda: count(client), lambda: submit(client, free), lambda: come_and_go(client)]
        threads = [threading.Thread(target=until_closed, args=(one,)) for one in what]
        threads += [threading.Thread(target=close, args=(client, millis)) for _ in range(2)]
        for thread in threads:
            thread.start()
        until_closed(what[0])
        for thread in threads:
            thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert any("had been closed; request repeated" in line for line in lines)
    print("end")
"""


def test_threads_that_log_fetch_count_submit_free_and_close_all_come_to_an_end(play: Play) -> None:
    answers: list[Any] = [{}, {}, {"delay_millis": 60}, {}, {}, {"steps": ["close"]}]
    service = play({"answers": answers * 5000, "keep": "nothing"})
    assert run_python(EVERYTHING_AT_ONCE, service.url, seconds=60) == "end\n"
