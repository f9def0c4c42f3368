from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from service import Mock, Service

from libexperiment import RemoteEvaluationClient, RemoteEvaluationConfig

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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The closing line of the cases that every language runs."""
    of = {
        outcome: [r for r in terminalreporter.stats.get(outcome, ()) if "test_case[" in r.nodeid]
        for outcome in ("passed", "failed", "skipped")
    }
    for report in of["skipped"]:
        terminalreporter.write_line(f"excepted: {report.nodeid}: {report.longrepr[2]}")
    if any(of.values()):
        passed, failed, excepted = (len(reports) for reports in of.values())
        terminalreporter.write_line(
            f"conformance python: {passed} passed, {failed} failed, {excepted} excepted"
        )
