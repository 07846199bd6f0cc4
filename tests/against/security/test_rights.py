"""Groups of every type and transactions with the rights that Kafka documents, and with one of them missing.

A user begins without one of its rights, and its client reports the missing right's error; at last the user
has all of them, and the client does its work.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ..clients import LIBRARIES, Client, Refused, eventually
from ..tries import tried
from .cluster import SecuredCluster
from .conftest import Workers

TOPIC = "TOPIC_AUTHORIZATION_FAILED"
GROUP = "GROUP_AUTHORIZATION_FAILED"
TRANSACTIONAL_ID = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
LOGGED = "is not authorized for this client"
"""In the log of kafka-python, whose consumer reports no error for a topic that it may not read."""
UNNAMED = "KafkaError"
"""What the two Python producers make of an answer to offsets that they do not expect."""
ERRORS = (TOPIC, GROUP, TRANSACTIONAL_ID, "CLUSTER_AUTHORIZATION_FAILED", UNNAMED)

VALUES = ["one two", "two"]
WITHIN_S = 60

READ = "READ topic:{source}"
READS = {"READ group:{group}-*": GROUP, READ: TOPIC}
COPIES = READS | {"WRITE topic:{target}": TOPIC, "WRITE transactional-id:{group}-*": TRANSACTIONAL_ID}

APPLICATION = {
    **READS,
    "WRITE topic:{target}": TOPIC,
    "CREATE,READ,WRITE,DELETE topic:{group}-*": None,
}
"""The last right is that on the internal topics, whose absence is no error of its own."""


@dataclass(frozen=True)
class Work:
    """What a user does with a library, and the error of each right that it needs."""

    name: str
    library: str
    rights: dict[str, str | None]
    role: str
    settings: dict[str, Any]
    again: str = ""
    """Part of every name when the test is tried again."""

    @property
    def names(self) -> dict[str, str]:
        own = f"{self.name}-{self.library}-{self.again}"
        return {"user": f"u-{own}", "group": f"g-{own}", "source": f"in-{own}", "target": f"out-{own}"}


def works() -> list[Work]:
    silent = {"kafka-python": {READ: LOGGED}}
    every = [
        Work("classic", library, READS | silent.get(library, {}), "consumer", {"commit": "sync"})
        for library in LIBRARIES
    ]
    for library in ("java", "confluent-kafka"):
        every += [
            Work("consumer", library, READS, "consumer", {"commit": "sync", "protocol": "consumer"}),
            Work("share", library, READS, "sharer", {"go": True}),
            Work("transactions", library, COPIES, "copier", {}),
        ]
    every += [
        Work("transactions", library, COPIES | {READ: UNNAMED}, "producer", {})
        for library in ("kafka-python", "aiokafka")
    ]
    every += [
        Work(f"streams-{protocol}", "java", APPLICATION, "streams", {"protocol": protocol})
        for protocol in ("classic", "streams")
    ]
    return every


WORKS = [
    pytest.param(work, id=f"{work.name}-{work.library}", marks=[pytest.mark.java] * (work.library == "java"))
    for work in works()
]


@pytest.mark.parametrize("work", WORKS)
def test_a_missing_right_is_the_clients_error(
    work: Work, cluster: SecuredCluster, workers: Workers, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    work = replace(work, again=f"{tried(request)}")
    names = work.names
    user = names["user"]
    cluster.add_users(user)
    cluster.create_topics(names["source"], names["target"])
    cluster.allow(user, *(right.format(**names) for right in work.rights))
    expected = {right: code for right, code in work.rights.items() if code is not None}
    errors = {}
    for right in expected:
        cluster.revoke(user, right.format(**names))
        group = f"{names['group']}-{len(errors)}"
        errors[right] = attempt(work, group, cluster, workers[work.library], tmp_path)
        workers.rest()  # Before rights change: a client that retries may block for long on another error.
        cluster.allow(user, right.format(**names))
    assert errors == expected
    group = f"{names['group']}-{len(errors)}"
    assert attempt(work, group, cluster, workers[work.library], tmp_path) is None


def attempt(work: Work, group: str, cluster: SecuredCluster, client: Client, folder: Path) -> str | None:
    """Do the work in a new group; return the authorization error that the client reports, or None if all is
    done."""
    start, log_start = len(client.events), len(client.log.read_text(errors="replace"))
    names = work.names
    before = cluster.end_of(names["target"])
    cluster.produce(names["source"], VALUES)
    if work.role == "sharer":
        cluster.set_group(group, "share.auto.offset.reset", "earliest")
    fields = cluster.scram(names["user"]).of(work.library) | work.settings
    fields |= {"group": group, "client_id": names["user"], "topics": [names["source"]]}
    fields["metadata_max_age_ms"] = 500
    if work.role in ("copier", "producer"):
        fields |= {"from": names["source"], "to": names["target"], "transactional_id": group}
    if work.role == "streams":
        fields |= {"input": names["source"], "output": names["target"], "state_dir": str(folder)}
    try:
        client.call("start", within_s=WITHIN_S, role=work.role, **fields)
        if work.role == "producer":
            write_with_offsets(client, names, group)
            return None
    except Refused as refused:
        if refused.name not in ERRORS:
            raise
        return refused.name

    def end() -> list[str | None]:
        errors = errors_of(client, start, log_start)
        if not errors and work.role == "streams":
            return [None] if cluster.end_of(names["target"]) > before else []
        is_done = any(event["event"] == DONE.get(work.role) for event in client.events[start:])
        return [*errors, None] if errors or is_done else []

    return eventually(f"end of {work.name}", end, WITHIN_S, among=[client])[0]


def write_with_offsets(client: Client, names: dict[str, str], group: str) -> None:
    """Write a record and a group's offset in one transaction."""
    client.call("init", WITHIN_S)
    client.call("begin")
    client.call("send", WITHIN_S, records=[{"topic": names["target"], "value": "one"}])
    client.call("offsets", WITHIN_S, group=group, offsets=[[names["source"], 0, 1]])
    client.call("commit", WITHIN_S)


def errors_of(client: Client, start: int, log_start: int) -> list[str]:
    """Return the authorization errors that a client has reported since then."""
    text = client.log.read_text(errors="replace")[log_start:] if client.library == "kafka-python" else ""
    found = [event["error"]["name"] for event in client.events[start:] if "error" in event]
    return [name for name in found if name in ERRORS] + [LOGGED] * (LOGGED in text)


DONE = {"consumer": "committed", "sharer": "acknowledged", "copier": "copied"}
"""The event by which a role reports that its work is done; an application's work is seen in its target."""
