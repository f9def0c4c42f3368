"""Servers and programs that fork in C, or put greenlets in the place of threads."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import HELD, Play
from service import run_python
from test_fork import FORKED, gunicorn

# PyDLL, as the GIL is had by whoever forks: uWSGI sees to that, too.
IN_C = """
    import ctypes

    fork = ctypes.PyDLL(None).fork
"""


def test_a_child_forked_in_c_fetches_in_every_way_and_exits_while_the_parents_fetch_is_pending(
    play: Play,
) -> None:
    program = """
    pending = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[2]))
    pending.fetch_async_v2(None, lambda *_: print("told", os.getpid(), flush=True))
    pending_too = AsyncRemoteEvaluationClient("key", pending.config)
    from libexperiment import _exit
    check(nonces("before", 5))

    loop = threading.Thread(target=lambda: asyncio.run(pending_too.fetch_v2(None)))
    loop.start()
    while pending_too.metrics()["connections_leased"] < 1:
        time.sleep(0.01)
    for _ in range(2):
        child = fork()
        if not child:
            signal.alarm(20)
            check(nonces(os.getpid(), 20))
            workers = [threading.Thread(target=check, args=(nonces(i, 5),)) for i in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            _exit._at_exit()
            # Not by sys.exit: Python would wait for the loop's thread, which is not there.
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("child", child, flush=True)
    loop.join()
    print("parent", os.getpid(), flush=True)
    """
    slow = play({"answers": [{"delay_millis": 4000}], "keep": "nothing"})
    url = play({"keep": "nothing"}).url
    lines = run_python(FORKED + IN_C + program, url, slow.url, seconds=60).split()
    said = list(zip(lines[::2], lines[1::2]))
    # The children first, while the parent's fetches are pending; told is the parent alone.
    assert [who for who, _ in said[:2]] == ["child", "child"]
    (told,) = (process for who, process in said if who == "told")
    assert ("parent", told) in said


def test_locks_that_a_thread_holds_at_a_fork_in_c_are_not_waited_for_in_the_child(
    play: Play,
) -> None:
    program = """
    from libexperiment import _dispatcher, factory

    check(nonces("before", 5))
    held, forked = threading.Event(), threading.Event()

    def holds():
        with factory._lock, _dispatcher._dispatcher()._lock:
            held.set()
            forked.wait()

    threading.Thread(target=holds).start()
    held.wait()
    child = fork()
    if not child:
        signal.alarm(20)
        Experiment.initialize_remote("another", config)
        check(nonces(os.getpid(), 5))
        Experiment.initialize_remote("another").close()
        # Not by sys.exit: Python would wait for the thread that is not there.
        os._exit(0)
    forked.set()
    assert os.waitpid(child, 0)[1] == 0
    print("ok")
    """
    assert run_python(FORKED + IN_C + program, play({"keep": "nothing"}).url) == "ok\n"


def test_a_grandchild_of_forks_in_c_and_in_python_fetches(play: Play) -> None:
    program = """
    check(nonces("before", 2))
    for how in (fork, os.fork, fork):
        child = how()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            break
        check(nonces(os.getpid(), 2))
    else:
        sys.exit(0)
    print("ok", flush=True)
    """
    assert run_python(FORKED + IN_C + program, play({"keep": "nothing"}).url) == "ok\n" * 3


def test_a_fork_by_a_thread_leaves_a_child_that_fetches_and_exits(play: Play) -> None:
    program = """
    check(nonces("before", 2))

    def forks():
        child = os.fork()
        if not child:
            signal.alarm(20)
            check(nonces(os.getpid(), 5))
            sys.stdout.flush()
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)

    thread = threading.Thread(target=forks)
    thread.start()
    thread.join()
    """
    assert run_python(FORKED + program, play({"keep": "nothing"}).url) == "0\n"


class UWsgi:
    """The real one, with an application whose client was used in the master."""

    def __init__(self, service: str, *options: str) -> None:
        command = [
            "uwsgi",
            "--http-socket",
            "127.0.0.1:0",
            "--master",
            "--need-app",
        ]
        self.fifo = os.path.join(tempfile.mkdtemp(), "fifo")
        command += ["--master-fifo", self.fifo]
        command += ["--home", sys.prefix, "--module", "preloaded:app", *options]
        self.server = subprocess.Popen(
            command, env={**os.environ, "SERVICE": service}, stderr=subprocess.PIPE, text=True
        )
        assert self.server.stderr is not None
        self.log = ""
        bound = None
        while "spawned uWSGI worker" not in self.log:
            line = self.server.stderr.readline()
            assert line, self.log
            self.log += line
            bound = bound or re.search(r"bound to TCP address (\S+)", line)
        assert bound, self.log
        self.url = f"http://{bound[1]}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    def stop(self) -> str:
        """Ends it, without being killed by its master, and returns what it has logged."""
        try:
            # By its FIFO, as a signal that comes while the master begins is lost.
            with open(self.fifo, "w") as fifo:
                fifo.write("Q")
            return self.log + self.server.communicate(timeout=20)[1]
        finally:
            self.server.kill()
            self.server.communicate()


THREADS = ["--threads", "4"]


@pytest.mark.parametrize(
    "options",
    [
        ["--processes", "2", "--enable-threads"],
        ["--processes", "2", *THREADS],
        ["--processes", "1", *THREADS, "--lazy-apps"],
        ["--processes", "2", *THREADS, "--py-call-uwsgi-fork-hooks"],
        ["--processes", "2", *THREADS, "--py-call-osafterfork"],
    ],
    ids=lambda options: "".join(options[2:]),
)
def test_uwsgi_serves_with_a_client_that_was_used_before_the_fork(
    play: Play, options: list[str]
) -> None:
    server = UWsgi(play({"keep": "nothing"}).url, *options)
    try:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(server.get, (f"request-{i}" for i in range(60))))
        assert [answer.split()[1] for answer in answers] == [f"/request-{i}" for i in range(60)]
    finally:
        log = server.stop()
    assert "Traceback" not in log, log
    # Its word for a worker that it had to kill.
    assert "seems to be hung" not in log.replace("worker 0", ""), log
    assert server.server.returncode == 0, log


def test_workers_of_uwsgi_exit_while_the_masters_fetch_is_pending(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENDING", play(HELD).url)
    server = UWsgi(
        play({}).url, "--processes", "2", "--enable-threads", "--worker-reload-mercy", "60"
    )
    try:
        assert server.get("u").split()[1] == "/u"
    finally:
        log = server.stop()
    assert "Traceback" not in log, log
    assert server.server.returncode == 0, log


def test_under_uwsgi_without_threads_callbacks_are_refused_and_fetches_work(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WITHOUT_THREADS", "1")
    server = UWsgi(play({}).url)
    try:
        assert server.get("u").split(maxsplit=2)[1:] == [
            "/u",
            "uWSGI runs without threads, so that no callback would be called: "
            "set enable-threads = true, or fetch with fetch_v2",
        ]
    finally:
        server.stop()


@pytest.mark.parametrize("single", [False, True])
def test_a_second_application_of_uwsgi_is_refused_but_in_a_single_interpreter(
    play: Play, single: bool
) -> None:
    options = ["--enable-threads", "--mount", "/second=preloaded:app"]
    if single:
        options.append("--single-interpreter")
    server = UWsgi(play({"keep": "nothing"}).url, *options)
    with contextlib.suppress(urllib.error.HTTPError):
        server.get("u")  # a worker that begins does not hear that it is to end
    log = server.stop()
    assert ("works in the main interpreter alone" in log) is not single, log


PATCHED = {
    "gevent": """
        from gevent import monkey
        monkey.patch_all()
        import gevent
        from gevent import spawn, sleep
        Expired, kill = gevent.Timeout, lambda greenlet: greenlet.kill(block=False)
    """,
    "eventlet": """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is deprecated, and says so
            import eventlet
            eventlet.monkey_patch()
        from eventlet import spawn, sleep
        Expired, kill = eventlet.Timeout, lambda greenlet: greenlet.kill()
    """,
}
GREEN = """
    import asyncio, logging, os, sys, threading, time
    from libexperiment import *

    quiet = logging.Logger("nobody reads it", logging.CRITICAL + 1)
    answering, held = (
        RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=url, logger=quiet))
        for url in sys.argv[1:]
    )
    turns = 0

    def turn():
        global turns
        while True:
            sleep(0.005)
            turns += 1

    def user(nonce):
        return User(user_id="u", user_properties={"nonce": nonce})

    def check(nonce):
        assert answering.fetch_v2_or_raise(user(nonce))["demo-nonce"].payload == nonce

    spawn(turn)
"""


def needs(package: str) -> None:
    """Not by importing it: it would change this process."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} has no version for this Python")


@pytest.fixture(params=PATCHED)
def patched(request: pytest.FixtureRequest) -> str:
    """What a program begins with that puts greenlets in the place of threads."""
    needs(request.param)
    begin: str = textwrap.dedent(PATCHED[request.param])
    return begin + textwrap.dedent(GREEN)


def test_greenlets_fetch_side_by_side_and_others_run_meanwhile(play: Play, patched: str) -> None:
    program = """
    began = time.monotonic()
    before = turns
    threads = [threading.Thread(target=check, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    check("main")
    for thread in threads:
        thread.join()
    # One after the other they would take nine times 300 ms.
    print(turns - before > 10, time.monotonic() - began < 1.5)
    """
    slow = play({"answers": [{"delay_millis": 300}] * 9})
    assert run_python(patched + textwrap.dedent(program), slow.url, slow.url) == "True True\n"


def test_a_greenlet_that_is_ended_ends_its_fetch_and_the_next_is_good(
    play: Play, patched: str
) -> None:
    program = """
    for _ in range(3):
        try:
            with Expired(0.1):
                held.fetch_v2(None)
            print("not ended")
        except Expired:
            pass
        greenlet = spawn(held.fetch_v2, None)
        sleep(0.05)
        kill(greenlet)
        check("next")
    until = time.monotonic() + 5
    while held.metrics()["failures"]["canceled"] < 6:
        assert time.monotonic() < until
        sleep(0.01)
    print("ok")
    """
    url = play({"keep": "nothing"}).url
    assert run_python(patched + textwrap.dedent(program), url, play(HELD).url) == "ok\n"


def test_greenlets_are_called_back_and_exit_waits_for_those_due(play: Play, patched: str) -> None:
    program = """
    for _ in range(2):  # nothing is pending between them
        before, told, done = turns, [], threading.Event()

        def callback(_, variants, error=None):
            told.append(error)
            if len(told) == 20:
                done.set()

        for i in range(20):
            answering.fetch_async_v2(user(i), callback)
        assert done.wait(10)
        assert told == [None] * 20 and turns > before
    answering.fetch_async_v2(user("last"), lambda _, variants: print("told"))
    """
    slow = play({"answers": [{"delay_millis": 50}] * 100})
    assert run_python(patched + textwrap.dedent(program), slow.url, slow.url) == "told\n"


def test_asyncio_works_where_threads_are_greenlets(play: Play, patched: str) -> None:
    program = """
    client = AsyncRemoteEvaluationClient("key", answering.config)

    async def main():
        answers = await asyncio.gather(*(client.fetch_v2(user(i)) for i in range(20)))
        return [answer["demo-nonce"].payload for answer in answers]

    print(asyncio.run(main()) == list(range(20)))
    """
    url = play({"keep": "nothing"}).url
    assert run_python(patched + textwrap.dedent(program), url, url) == "True\n"


def test_a_child_of_a_process_of_greenlets_fetches_in_every_way(play: Play) -> None:
    needs("gevent")
    program = """
    import ctypes

    check("before")
    answering.fetch_async_v2(None)
    for fork in (os.fork, ctypes.PyDLL(None).fork):
        child = fork()
        if not child:
            done = threading.Event()
            answering.fetch_async_v2(user("told"), lambda *_: done.set())
            check("child")
            os._exit(not done.wait(5))
        print(os.waitpid(child, 0)[1], flush=True)
    check("parent")
    """
    # Of eventlet a child has the parent's hub, and it says itself that forks do not work.
    url = play({"keep": "nothing"}).url
    begin = textwrap.dedent(PATCHED["gevent"]) + textwrap.dedent(GREEN)
    assert run_python(begin + textwrap.dedent(program), url, url) == "0\n0\n"


def test_greenlets_that_a_child_inherits_are_told_that_their_fetch_is_the_parents(
    play: Play,
) -> None:
    needs("gevent")
    program = """
    def fetches():
        try:
            return held.fetch_v2_or_raise(None)
        except FetchCanceledError as error:
            return str(error)

    fetching = spawn(fetches)
    answering.fetch_async_v2(user("a"), lambda *_: print("told", flush=True))
    sleep(0.01)
    child = os.fork()
    if not child:
        check("child")
        inherited = fetching.get(timeout=5)
        os._exit(inherited != "the fetch is that of the process this one was forked from")
    print(os.waitpid(child, 0)[1], len(fetching.get(timeout=5)), flush=True)
    """
    slow = play({"answers": [{"delay_millis": 200}]})
    begin = textwrap.dedent(PATCHED["gevent"]) + textwrap.dedent(GREEN)
    said = run_python(begin + textwrap.dedent(program), slow.url, slow.url)
    assert sorted(said.split()) == ["0", "4", "told"]


def test_a_process_that_is_patched_after_the_import_fetches_and_exits(play: Play) -> None:
    needs("gevent")
    program = """
    import libexperiment
    from gevent import monkey
    monkey.patch_all()
    from gevent import sleep, spawn
    """
    use = """
    answering.fetch_async_v2(user("u"), lambda _, variants: print("told", len(variants)))
    check("u")
    """
    url = play({"keep": "nothing"}).url
    dedented = map(textwrap.dedent, (program, GREEN, use))
    assert run_python("".join(dedented), url, url) == "told 4\n"


def test_a_program_of_gevent_is_done_when_nothing_is_pending(play: Play) -> None:
    needs("gevent")
    program = """
    answering.fetch_async_v2(user("u"), lambda _, variants: print("told"))
    gevent.wait()
    print("done")
    """
    url = play({"keep": "nothing"}).url
    begin = textwrap.dedent(PATCHED["gevent"]) + textwrap.dedent(GREEN.replace("spawn(turn)", ""))
    assert run_python(begin + textwrap.dedent(program), url, url) == "told\ndone\n"


def test_gunicorn_with_gevent_serves_requests_side_by_side(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("gevent")
    # Two greenlets cannot run loops of asyncio side by side, as they are on one thread.
    monkeypatch.setenv("WITHOUT_ASYNCIO", "1")
    slow = play({"answers": [{}] * 2 + [{"delay_millis": 300}] * 100, "keep": "nothing"})
    with gunicorn(slow.url, "--worker-class", "gevent", "--workers", "1") as url:
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            pages = (f"{url}/request-{i}" for i in range(8))
            answers = list(pool.map(lambda page: urllib.request.urlopen(page).read(), pages))
        took = time.monotonic() - began
    assert [answer.split()[1].decode() for answer in answers] == [f"/request-{i}" for i in range(8)]
    # One after the other they would take 2.4 s.
    assert took < 1.5
