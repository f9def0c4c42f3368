"""Who goes through the incident, with which settings, and what ours promises with them."""

from dataclasses import dataclass, field

ADVISED = {
    "fetch_timeout_millis": 500,
    "fetch_retries": 1,
    "fetch_retry_timeout_millis": 500,
    "fetch_retry_backoff_min_millis": 0,
}
DEADLINE = {"fetch_deadline_millis": 600}
BUDGET = {"fetch_retry_budget_percent": 10}
POOL = {"connection_pool_max_size": 8, "fetch_pool_acquire_timeout_millis": 500}
# What ours does without settings; in Go that is, as in the vendor's SDK, what the vendor advises.
DEFAULTS = {
    "fetch_timeout_millis": 10_000,
    "fetch_retries": 0,
    "fetch_retry_timeout_millis": 10_000,
    "fetch_retry_backoff_min_millis": 500,
}


@dataclass
class Client:
    name: str
    label: str
    program: str
    settings: dict = field(default_factory=dict)

    @property
    def ours(self):
        return self.name.startswith("ours")

    def __str__(self):
        return f"{self.name}, {self.label}"

    def effective(self):
        own = ADVISED if self.program == "go" else {}
        return DEFAULTS | own | self.settings

    def bound_millis(self):
        """The longest that a fetch of ours may take: README, "How long a fetch can take"."""
        of = self.effective()
        # One retry at most, here. An attempt may wait for a connection as long as for the answer.
        retry = 2 * of["fetch_retry_timeout_millis"] + of["fetch_retry_backoff_min_millis"]
        whole = 2 * of["fetch_timeout_millis"] + retry * of["fetch_retries"]
        return min(whole, of.get("fetch_deadline_millis", whole))


def sdks():
    python, node = "Python SDK 1.13.0", "Node SDK 1.13.6"
    return [
        Client(python, "default", "python-sdk"),
        Client(python, "advised", "python-sdk", ADVISED),
        Client(python, "advised, pool of 8 with a limit", "python-sdk", ADVISED | POOL),
        Client(node, "default", "node-sdk"),
        Client(node, "advised", "node-sdk", ADVISED),
        Client("Go SDK 1.12.0", "default = advised", "go-sdk"),
        Client("JVM SDK 1.0.0", "default = advised", "jvm-sdk"),
    ]


def ours():
    with_deadline = "advised, deadline of 600 ms"
    clients = []
    for language in ("C", "Python", "Ruby"):
        name, program = f"ours, {language}", language.lower()
        clients += [
            Client(name, "default", program),
            Client(name, "advised", program, ADVISED),
            Client(name, with_deadline, program, ADVISED | DEADLINE),
        ]
    return clients + [
        Client("ours, Go", "default = advised", "go"),
        Client("ours, Go", with_deadline, "go", DEADLINE),
    ]


def clients_for(kind):
    """The stall meets all of them, in all settings; the other kinds, what servers should have."""
    if kind == "stall":
        return sdks() + ours()
    advised = [client for client in sdks() + ours() if "advised" in client.label]
    clients = [c for c in advised if "pool" not in c.label and (not c.ours or c.program == "c")]
    if kind == "503":
        clients.insert(0, Client("Node SDK 1.13.6", "default", "node-sdk"))
        clients.append(Client("ours, C", "advised, retry budget of 10 %", "c", ADVISED | BUDGET))
    return clients
