from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from service import Mock, Service

from libexperiment import RemoteEvaluationClient, RemoteEvaluationConfig
from libexperiment._library import speedups

assert bool(speedups) is not bool(os.environ.get("EXPERIMENT_NO_SPEEDUPS")), "not what is tested"

#: Plays a script.
Play = Callable[[dict[str, Any]], Service]
#: A client of a service with these settings.
Connect = Callable[..., RemoteEvaluationClient]

HELD: dict[str, Any] = {"answers": [{"steps": ["hold"]}]}


@pytest.fixture(scope="session")
def mock() -> Iterator[Mock]:
    mock = Mock()
    yield mock
    mock.close()


@pytest.fixture
def play(mock: Mock) -> Iterator[Play]:
    services: list[Service] = []

    def play(script: dict[str, Any]) -> Service:
        services.append(mock.play(script))
        return services[-1]

    yield play
    for service in services:
        service.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[RemoteEvaluationClient] = []

    def connect(service: Service, **settings: Any) -> RemoteEvaluationClient:
        config = RemoteEvaluationConfig(server_url=service.url, **settings)
        clients.append(RemoteEvaluationClient("test-key", config))
        return clients[-1]

    yield connect
    for client in clients:
        client.close(0)


#: What came of each case: the worst of all ways of fetching.
CASES: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = re.search(r"test_case\[(.*)-\w+]$", report.nodeid)
    if name and not (report.passed and report.when != "call"):
        before = CASES.get(name[1], report.outcome)
        CASES[name[1]] = "failed" if "failed" in (before, report.outcome) else report.outcome


def pytest_unconfigure() -> None:
    """The closing line of the cases that every language runs."""
    for name in [name for name, outcome in CASES.items() if outcome == "skipped"]:
        print(f"excepted: {name}")
    counts = Counter(CASES.values())
    if CASES:
        passed, failed, excepted = (counts[name] for name in ("passed", "failed", "skipped"))
        print(f"conformance python: {passed} passed, {failed} failed, {excepted} excepted")
