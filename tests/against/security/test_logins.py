"""Clients log in by every mechanism that their library has; and they accept no bad certificate."""

import pytest

from ..clients import LIBRARIES, Client, Refused
from ..tries import own_name
from .cluster import ALICE, Login, SecuredCluster
from .conftest import Workers

MECHANISMS = ("scram", "plain", "oauth", "mutual_tls")
WITHIN_S = 60

each_library = pytest.mark.parametrize(
    "library",
    [pytest.param(name, marks=[pytest.mark.java] * (name == "java")) for name in LIBRARIES],
)


def login_by(cluster: SecuredCluster, mechanism: str) -> Login:
    return {
        "scram": lambda: cluster.scram(ALICE),
        "plain": cluster.plain,
        "oauth": cluster.oauth,
        "mutual_tls": cluster.mutual_tls,
    }[mechanism]()


@each_library
def test_every_mechanism_names_the_same_user(
    library: str, cluster: SecuredCluster, workers: Workers, request: pytest.FixtureRequest
) -> None:
    """A member of a group writes, reads and commits, with the rights of the user that it logs in as."""
    topic = own_name(request)
    cluster.create_topics(topic)
    cluster.add_users(ALICE)
    cluster.allow(ALICE, f"READ,WRITE topic:{topic}", f"READ group:{topic}")
    client = workers[library]
    for number, mechanism in enumerate(MECHANISMS, 1):
        login = login_by(cluster, mechanism).of(library)
        client.call("start", WITHIN_S, role="producer", idempotence=True, **login)
        client.call("send", WITHIN_S, records=[{"topic": topic, "value": mechanism}])
        reader = {"group": topic, "topics": [topic], "commit": "sync", "metadata_max_age_ms": 500}
        client.call("start", WITHIN_S, role="consumer", **reader, **login)
        wanted = (mechanism, [topic, 0, number])
        client.until(
            f"record and commit by {mechanism}", lambda wanted=wanted: last(client) == wanted, WITHIN_S
        )


def last(client: Client) -> tuple[str, list[object]]:
    """Return the value that a consumer has read last, and the offset that it has committed last."""
    committed = client.of("committed")
    return (client.values() or [""])[-1], committed[-1]["offsets"][0][:3] if committed else []


CAUSES = {
    "java": "SSL handshake failed",
    "confluent-kafka": "certificate verify failed",
    "kafka-python": "CERTIFICATE_VERIFY_FAILED",
    "aiokafka": "CERTIFICATE_VERIFY_FAILED",
}
"""What the client reports, in an error or, before its time is up, in its log."""


@each_library
@pytest.mark.parametrize("listener", ["EXPIRED", "ELSEWHERE"])
def test_a_bad_certificate_is_refused(
    library: str, listener: str, cluster: SecuredCluster, workers: Workers
) -> None:
    """Of a server whose certificate has expired, or is of another host: an error, and no waiting for ever."""
    client = workers[library]
    start, log_start = len(client.events), len(client.log.read_text(errors="replace"))
    login = cluster.one_way_tls(listener).of(library)
    if library == "kafka-python":
        login["options"]["bootstrap_timeout_ms"] = 1000

    def errors() -> list[str]:
        return [event["error"]["message"] for event in client.events[start:] if event["event"] == "error"]

    try:
        client.call("start", WITHIN_S, role="consumer", group="g", topics=["t"], **login)
        found = client.until("error", errors, WITHIN_S)
    except Refused as refused:
        found = [str(refused)]
    assert CAUSES[library] in f"{found}{client.log.read_text(errors='replace')[log_start:]}"
