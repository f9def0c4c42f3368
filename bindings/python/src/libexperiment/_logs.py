"""Log lines of the library, on their way to `logging`.

The library logs on the thread that has something to say: inside a call of ours, or one of its own.
No Python code runs there: the callbacks are functions of C that put the line into a queue. It is
handed to `logging` when the call returns, or the outcome is delivered. So no handler of the user
ever runs inside the library, no exception of a signal handler is lost in a callback, and threads of
the library never show up as threads of Python.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
from collections import deque
from contextlib import suppress
from ctypes import PYFUNCTYPE, c_char_p, c_int, c_uint64, py_object
from functools import partial
from typing import Any

from . import _process
from ._library import Finalizer, LogCallback, lib

# By the number of EXP_LOG_...; index 0 is not used.
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

_numbers = itertools.count(1)
#: The logger of each set of callbacks that the library still holds.
loggers: dict[int, logging.Logger] = {}

# A line is (number, level, text); a number alone says that no more of its lines will come. Bounded,
# as nobody might fetch any more.
_queue: deque[int | tuple[int, int, bytes]] = deque(maxlen=10_000)

# deque.append((number, level, text)) as one call of C. Py_BuildValue's format: K is a uint64.
_call_method = PYFUNCTYPE(py_object, py_object, c_char_p, c_char_p, c_uint64, c_int, c_char_p)(
    ("PyObject_CallMethod", ctypes.pythonapi)
)

# Kept for ever, and never one per client: they may run until the process ends.
_on_line = LogCallback(partial(_call_method, _queue, b"append", b"((Kiy))"))
_on_end = Finalizer(_queue.append)


def attach(config: Any, logger: logging.Logger) -> int:
    """Sends the lines of clients with that native config to the logger, down to its level now."""
    level = logger.getEffectiveLevel()
    max_level = sum(level <= known for known in _LEVELS[1:])
    if max_level == 0:
        return 0
    number = next(_numbers)
    loggers[number] = logger
    lib.exp_config_set_log_callback(config, _on_line, number, _on_end, max_level)
    return number


def in_child(kept: set[int]) -> None:
    """What has been said, and what will end, is the parent's, but for clients that are there."""
    _queue.clear()
    for number in loggers.keys() - kept:
        del loggers[number]


def flush() -> None:
    """Hands over what came so far."""
    if _queue:
        _process.enter()
    while _queue:
        try:
            entry = _queue.popleft()
        except IndexError:  # another thread was faster
            return
        if isinstance(entry, int):
            loggers.pop(entry, None)
            continue
        number, level, text = entry
        logger = loggers.get(number)
        if logger is not None:
            with suppress(Exception):  # of a filter: no fetch fails for it
                logger.log(_LEVELS[level], "%s", text.decode("utf-8", "replace"))
