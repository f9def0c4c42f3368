"""Settings of a client."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ._arguments import ratio, utf8, whole
from ._library import NO_LIMIT, VERSION, lib
from .errors import InvalidArgumentError

DEFAULT_SERVER_URL = "https://api.lab.amplitude.com"


class ServerZone(Enum):
    """Which of the service's data centres is asked."""

    US = "US"
    EU = "EU"


@dataclass
class RemoteEvaluationConfig:
    """Settings of a client, which reads them when it is created and refuses what is out of range.

    Times are in milliseconds, 0 to 86 400 000 if nothing else is said; NO_LIMIT where it says so.
    """

    #: Logs everything to the console, if `logger` is not given.
    debug: bool = False
    #: Where the service is: http(s)://host[:port][/base/path]. Wins over server_zone.
    server_url: str = DEFAULT_SERVER_URL
    #: What the first attempt may take from its connection to the last byte; at least 1.
    fetch_timeout_millis: int = 10000
    #: Attempts after the first: 0 to 100.
    fetch_retries: int = 0
    #: The wait before the second attempt.
    fetch_retry_backoff_min_millis: int = 500
    #: The longest wait between two attempts. A service that asks for more ends the fetch.
    fetch_retry_backoff_max_millis: int = 10000
    #: What each wait is multiplied by for the next: 1 to 100.
    fetch_retry_backoff_scalar: float = 1.5
    #: What each attempt after the first may take; at least 1.
    fetch_retry_timeout_millis: int = 10000
    #: What each attempt may wait for a free connection, or NO_LIMIT; None: as long as the attempt's
    #: own timeout. (The vendor's None waits for ever.)
    fetch_pool_acquire_timeout_millis: int | None = None
    #: Whose data centre is asked.
    server_zone: ServerZone = ServerZone.US
    #: Connections, and so exchanges at the same time: 1 to 1024. They are opened when needed. (The
    #: vendor's default of 1 lets every fetch wait for the slowest.)
    connection_pool_max_size: int = 8
    #: Who takes log lines, from the level that it has when a client is made; None: the logger
    #: named "Amplitude".
    logger: logging.Logger | None = None
    #: A bound on every whole fetch, from the call to its return, or NO_LIMIT.
    fetch_deadline_millis: int = NO_LIMIT
    #: Whether each wait is drawn evenly between zero and the back-off.
    fetch_retry_jitter: bool = False
    #: Retries allowed for each hundred fetches of the client: 1 to 100; 0: no such budget.
    fetch_retry_budget_percent: int = 0
    #: How long an unused connection may be used again.
    connection_idle_timeout_millis: int = 30000
    #: How long a connection is used at all, or NO_LIMIT.
    connection_max_lifetime_millis: int = 300000
    #: Asynchronous fetches that may be pending at once: 1 to 1 000 000.
    max_pending_fetches: int = 1024
    #: The largest body that is read, after decompression: 1 to 1 073 741 824.
    max_response_bytes: int = 8388608
    #: A PEM file with the authorities to trust in place of the built-in ones.
    ca_file: str | None = None
    #: The proxy to go through: http(s)://[user:password@]host[:port]. Wins over the environment.
    proxy_url: str | None = field(default=None, repr=False)
    #: Whether HTTPS_PROXY and its kin are obeyed.
    use_environment_proxy: bool = True
    #: What the service is told to be asked by.
    library: str = f"libexperiment-python/{VERSION}"

    def worst_case_millis(self) -> int:
        """The longest that a fetch can take with these settings; NO_LIMIT if nothing bounds it."""
        native = native_config(self)
        try:
            return lib.exp_config_worst_case_millis(native)  # type: ignore[no-any-return]
        finally:
            lib.exp_free(native)


_UINT32 = (
    "fetch_retries",
    "fetch_retry_budget_percent",
    "connection_pool_max_size",
    "max_pending_fetches",
)
_UINT64 = (
    "fetch_timeout_millis",
    "fetch_pool_acquire_timeout_millis",
    "fetch_retry_timeout_millis",
    "fetch_retry_backoff_min_millis",
    "fetch_retry_backoff_max_millis",
    "fetch_deadline_millis",
    "connection_idle_timeout_millis",
    "connection_max_lifetime_millis",
    "max_response_bytes",
)
_NUMBERS = {**dict.fromkeys(_UINT32, 0xFFFF_FFFF), **dict.fromkeys(_UINT64, 0xFFFF_FFFF_FFFF_FFFF)}
_ZONES = {ServerZone.US: 0, ServerZone.EU: 1}


def native_config(config: RemoteEvaluationConfig) -> Any:
    """The settings as the library has them, yours to free. It remembers what it refuses."""
    native = lib.exp_config_new()
    try:
        _fill(native, config)
    except BaseException:
        lib.exp_free(native)
        raise
    return native


def _fill(native: Any, config: RemoteEvaluationConfig) -> None:
    if config.server_zone not in _ZONES:
        raise InvalidArgumentError(f"server_zone must be a ServerZone, not {config.server_zone!r}")
    lib.exp_config_set_server_zone(native, _ZONES[config.server_zone])
    # The default stands for "whatever the zone says", as in the vendor's SDK.
    if config.server_url != DEFAULT_SERVER_URL:
        _set_text(native, "server_url", config.server_url)
    for name in ("ca_file", "proxy_url", "library"):
        if getattr(config, name) is not None:
            _set_text(native, name, getattr(config, name))
    for name, largest in _NUMBERS.items():
        value = getattr(config, name)
        if value is not None:
            getattr(lib, f"exp_config_set_{name}")(native, whole(name, value, largest))
    scalar = ratio("fetch_retry_backoff_scalar", config.fetch_retry_backoff_scalar)
    lib.exp_config_set_fetch_retry_backoff_scalar(native, scalar)
    lib.exp_config_set_fetch_retry_jitter(native, bool(config.fetch_retry_jitter))
    lib.exp_config_set_use_environment_proxy(native, bool(config.use_environment_proxy))


def _set_text(native: Any, name: str, value: str) -> None:
    text = utf8(name, value)
    getattr(lib, f"exp_config_set_{name}_n")(native, text, len(text))


def logger_of(config: RemoteEvaluationConfig) -> logging.Logger:
    """Who takes log lines. Only `debug` changes a logger, and only the default one."""
    if config.logger is not None:
        return config.logger
    logger = logging.getLogger("Amplitude")
    if config.debug:
        logger.setLevel(logging.DEBUG)
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
    return logger
