"""What belongs to one process, and must not be taken over by one that is forked from it.

Python's hooks for forks run when Python forks. uWSGI, like any host that is written in C, forks by
itself, and they do not run. So whoever is about to use such state asks here first, where pids are
compared.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

_adopters: list[Callable[[], None]] = []
# Counted by Python's hook: the first process of a PID namespace may have the PID of its parent.
_forks = 0
# One for each process, as a thread of the parent may have held the parent's at the fork.
_locks: dict[tuple[int, int], Any] = {}


def current() -> tuple[int, int]:
    """This process: equal in all its threads, and in no other process that has this memory."""
    return os.getpid(), _forks


_adopted_by = current()


def in_child(adopt: Callable[[], None]) -> None:
    """Has that called once in each child, before `enter` returns there. It waits for nobody."""
    _adopters.append(adopt)


def enter() -> None:
    """Begins anew if this is a child in which nobody has called this before."""
    if _adopted_by != current():
        _adopt()


def _adopt() -> None:
    global _adopted_by
    here = current()
    # setdefault is one step: all threads of the child get the same lock, and one adopts.
    with _locks.setdefault(here, threading.RLock()):
        if _adopted_by != here:
            for adopt in _adopters:
                adopt()
            _adopted_by = here


def _count() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count)
