"""Writes by producers that were fenced, timed out, or lost their group membership are rejected."""

import pytest

from ..clients import OLDER_JAVA, Client, Fleet, Refused, eventually, group_offsets
from .readers import TOPIC, Readers, write
from .test_producers import WRITERS, transactional

FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED"}
"""Error names of a producer whose epoch is fenced; librdkafka has an error name of its own."""


FENCEABLE = [writer for writer in WRITERS if writer.values[0] != "kafka-python"]
"""Libraries whose fenced producer stays fenced. kafka-python's may request a new epoch and fence its
successor."""


def refused(producer: Client, verb: str, **fields: object) -> str:
    """Return the name of the error with which this command is rejected."""
    with pytest.raises(Refused) as error:
        producer.call(verb, **fields)
    return error.value.name


@pytest.mark.parametrize("library", FENCEABLE)
def test_a_newcomer_of_the_same_name_fences_the_zombie(library: str, fleet: Fleet, readers: Readers) -> None:
    """A second producer with the transactional id begins by aborting what the first had open; the first can
    neither write on nor commit, and what the second commits stands."""
    name = f"zombie {library}"
    zombie = transactional(fleet, library, "zombie")
    zombie.call("begin")
    write(zombie, (0, f"{name} undead"))
    newcomer = fleet.producer(library, transactional_id=f"zombie-{library}")
    newcomer.call("init", within_s=40)
    newcomer.call("begin")
    write(newcomer, (0, f"{name} alive"))
    record = {"topic": TOPIC, "partition": 0, "key": None, "value": f"{name} again"}
    with pytest.raises(Refused):
        zombie.call("send", records=[record])
        zombie.call("commit")
    newcomer.call("commit")
    readers.all_see(name, {f"{name} alive"})
    newcomer.close()
    zombie.kill()


@pytest.mark.java
@pytest.mark.parametrize("library", WRITERS)
def test_a_transaction_that_takes_too_long_is_aborted(
    library: str, fleet: Fleet, readers: Readers, admin: Client
) -> None:
    """When its time is over the coordinator aborts it: readers go on past it, its partitions are no longer
    the transaction's, and a commit that comes later is refused."""
    slow = transactional(fleet, library, "slow", transaction_timeout_ms=1000)
    slow.call("begin")
    write(slow, (0, f"slow {library}"))
    open_ = described(admin, f"slow-{library}")
    assert (open_["state"], open_["partitions"]) == ("Ongoing", [[TOPIC, 0]])
    done = eventually(
        "an abort",
        lambda: (
            (description := described(admin, f"slow-{library}"))["state"] == "CompleteAbort" and description
        ),
        20,
    )
    assert (done["partitions"], done["timeout_ms"]) == ([], 1000)
    assert done["producer_id"] == open_["producer_id"]
    assert done["producer_epoch"] > open_["producer_epoch"]
    readers.none_sees(f"slow {library}")
    with pytest.raises(Refused):
        slow.call("commit")
    readers.none_sees(f"slow {library}")
    slow.kill()


def described(admin: Client, transactional_id: str) -> dict[str, object]:
    description: dict[str, object] = admin.call("describe_transactions", ids=[transactional_id])[
        transactional_id
    ]
    return description


@pytest.mark.java
@pytest.mark.parametrize("library", ["java", OLDER_JAVA])
def test_offsets_of_a_member_that_was_replaced_are_refused(
    library: str, fleet: Fleet, readers: Readers
) -> None:
    """Offsets carry the member's id and generation (KIP-447). After a rebalance without the member they are
    rejected and the transaction is aborted; offsets with the new generation are accepted."""
    group = f"generations-{library}"
    settings = {"group": group, "topics": [TOPIC], "isolation_level": "read_committed"}
    member = fleet.consumer("java", f"{group}-member", **settings)
    member.until("a partition", member.holds)
    me = member.call("member")
    writer = transactional(fleet, library, "generation")
    writer.call("begin")
    write(writer, (0, f"{group} in time"))
    writer.call("offsets", offsets=[[TOPIC, 0, 3, ""]], group=group, **me)
    writer.call("commit")

    newcomer = fleet.consumer("confluent-kafka", f"{group}-newcomer", **settings)
    newcomer.until("a partition", newcomer.holds)
    writer.call("begin")
    write(writer, (0, f"{group} too late"))
    assert refused(writer, "offsets", offsets=[[TOPIC, 0, 4, ""]], group=group, **me) in {
        "CommitFailedException",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
    }
    writer.call("abort")

    writer.call("begin")
    write(writer, (0, f"{group} again"))
    me = member.call("member")
    writer.call("offsets", offsets=[[TOPIC, 0, 5, ""]], group=group, **me)
    writer.call("commit")
    assert group_offsets(readers.admin, group) == [[TOPIC, 0, 5, ""]]
    readers.all_see(group, {f"{group} in time", f"{group} again"})
    for client in (member, newcomer, writer):
        client.close()


@pytest.mark.java
@pytest.mark.parametrize("library", ["java", OLDER_JAVA])
def test_an_administrator_fences_producers(
    library: str, fleet: Fleet, readers: Readers, admin: Client
) -> None:
    """Admin's fenceProducers aborts the open transaction, and the producer's commit is rejected as fenced."""
    writer = transactional(fleet, library, "unwanted")
    writer.call("begin")
    write(writer, (0, f"unwanted {library}"))
    admin.call("fence_producers", ids=[f"unwanted-{library}"])
    description = described(admin, f"unwanted-{library}")
    assert (description["state"], description["partitions"]) == ("Empty", [])
    assert refused(writer, "commit") in FENCED
    readers.none_sees(f"unwanted {library}")
    writer.kill()
