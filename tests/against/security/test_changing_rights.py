"""Rights that change while clients work: what is taken away ends at once, what remains is not disturbed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ..clients import LIBRARIES, Client, eventually
from ..tries import own_name
from .cluster import SecuredCluster
from .conftest import Workers

WITHIN_S = 60
TOPIC_ERROR = "TOPIC_AUTHORIZATION_FAILED"
CHURN = 60
"""Other ACLs that are created and deleted again while clients work."""

each_library = pytest.mark.parametrize(
    "library",
    [pytest.param(name, marks=[pytest.mark.java] * (name == "java")) for name in LIBRARIES],
)


def since(client: Client, start: int) -> tuple[list[str], list[str]]:
    """Return the values that a client has read, and the names of the errors it has reported, since then."""
    events = client.events[start:]
    values = [record["value"] for e in events if e["event"] == "records" for record in e["records"]]
    return values, [event["error"]["name"] for event in events if "error" in event]


@each_library
def test_a_right_is_taken_from_a_consumer_and_given_back(
    library: str, cluster: SecuredCluster, workers: Workers, request: pytest.FixtureRequest
) -> None:
    """After the revocation the consumer reads nothing and reports the error; with the right it goes on where
    it was."""
    name = own_name(request)
    cluster.create_topics(name)
    cluster.add_users(name)
    cluster.allow(name, f"READ topic:{name}", f"READ group:{name}")
    client = workers[library]
    start = len(client.events)
    fields = {"group": name, "topics": [name], "commit": "sync", "metadata_max_age_ms": 500}
    client.call("start", WITHIN_S, role="consumer", **fields, **cluster.scram(name).of(library))
    cluster.produce(name, ["before"])
    client.until("first record", lambda: since(client, start)[0] == ["before"], WITHIN_S)

    cluster.revoke(name, f"READ topic:{name}")
    if cluster.broker.name == "kafka":  # It answers a fetch that waits by the rights of when it came.
        client.until("error", lambda: TOPIC_ERROR in since(client, start)[1], WITHIN_S)
    cluster.produce(name, ["hidden"])
    client.until("error", lambda: TOPIC_ERROR in since(client, start)[1], WITHIN_S)
    assert since(client, start)[0] == ["before"]

    cluster.allow(name, f"READ topic:{name}")
    client.until("second record", lambda: since(client, start)[0] == ["before", "hidden"], WITHIN_S)


@contextmanager
def other_acls(cluster: SecuredCluster) -> Iterator[Callable[[], int]]:
    """Create and delete ACLs of other users and resources during the block; yields the number so far."""
    done = [0]
    ending = threading.Event()

    def churn() -> None:
        while not ending.is_set():
            n = done[0]
            rights = (f"READ topic:other-{n}", "READ topic:shared-*", f"WRITE group:other-{n % 7}*")
            cluster.allow(f"other-{n % 5}", *rights)
            cluster.revoke(f"other-{n % 5}", *rights)
            done[0] += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        ending.set()
        thread.join()


def test_other_acls_disturb_no_one(
    cluster: SecuredCluster, workers: Workers, request: pytest.FixtureRequest
) -> None:
    """While ACLs of others come and go a producer and a group lose nothing and report no error, and a reader
    whose right is taken away gets nothing that is written after that."""
    name = own_name(request)
    former = f"former-{name}"
    cluster.create_topics(name)
    cluster.add_users(name, former)
    cluster.allow(name, f"READ,WRITE topic:{name}", f"READ group:{name}")
    cluster.allow(former, f"READ topic:{name}")
    libraries = ("aiokafka", "confluent-kafka", "kafka-python")
    reader, writer, dismissed = clients = [workers[library] for library in libraries]
    starts = {client: len(client.events) for client in clients}
    fields = {"group": name, "topics": [name], "commit": "sync", "metadata_max_age_ms": 500}
    reader.call("start", WITHIN_S, role="consumer", **fields, **cluster.scram(name).of("aiokafka"))
    login = cluster.scram(name).of("confluent-kafka")
    writer.call("start", WITHIN_S, role="producer", idempotence=True, **login)
    login = cluster.scram(former).of("kafka-python")
    dismissed.call("start", WITHIN_S, role="consumer", assign=[[name, 0]], **login)

    with other_acls(cluster) as churned:
        writer.call("stream", topic=name, prefix="", count=10**6, rate_per_s=200)
        dismissed.until("a record", lambda: since(dismissed, starts[dismissed])[0], WITHIN_S)
        cluster.revoke(former, f"READ topic:{name}")
        if cluster.broker.name == "kafka":
            dismissed.until("error", lambda: TOPIC_ERROR in since(dismissed, starts[dismissed])[1], WITHIN_S)
        limit, before = cluster.end_of(name), churned()
        eventually("changes", lambda: churned() >= before + CHURN, WITHIN_S, among=clients)
        dismissed.until("error", lambda: TOPIC_ERROR in since(dismissed, starts[dismissed])[1], WITHIN_S)
        totals = writer.call("settle", WITHIN_S)

    sent = totals["sent"]
    assert totals == {"sent": sent, "acked": sent, "failed": 0}
    assert sent > limit
    reader.until("every record", lambda: len(since(reader, starts[reader])[0]) >= sent, WITHIN_S)
    assert since(reader, starts[reader]) == ([str(n) for n in range(sent)], [])
    assert since(writer, starts[writer])[1] == []
    assert [value for value in since(dismissed, starts[dismissed])[0] if int(value) >= limit] == []
