"""What a host does to threads: greenlets in their place, or none of them."""

from __future__ import annotations

import sys
import time
from functools import partial
from importlib import import_module
from typing import Any, Callable

#: Lets other greenlets run until a descriptor can be read.
Wait = Callable[[int], Any]


def green_wait() -> Wait | None:
    """How to wait where gevent or eventlet has put greenlets in the place of threads; else None."""
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return import_module("gevent.socket").wait_read  # type: ignore[no-any-return]
    patcher: Any = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        return partial(import_module("eventlet.hubs").trampoline, read=True)
    return None


def pause() -> None:
    """Lets other greenlets run, which have the host's own sleep in the place of that."""
    time.sleep(0)


def refuse_callbacks_without_threads() -> None:
    """Under uWSGI without threads the GIL is kept between requests: nobody would be called back."""
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is None or green_wait():
        return
    options = getattr(uwsgi, "opt", {})
    if "threads" not in options and options.get("enable-threads") in (None, False, b"false"):
        raise RuntimeError(
            "uWSGI runs without threads, so that no callback would be called: "
            "set enable-threads = true, or fetch with fetch_v2"
        )
