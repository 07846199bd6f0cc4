"""Every library's transactions, as the readers of every library see them."""

from pathlib import Path

import pytest

from ..brokers import Broker
from ..clients import LIBRARIES, OLDER_JAVA, Client, Fleet, fleet_of, group_offsets, meet_the_coordinator
from ..conftest import java_is_missing
from .readers import TOPIC, Readers, write

JAVA = ("java", OLDER_JAVA)
WRITERS = [
    pytest.param(library, marks=pytest.mark.java if library in JAVA else ())
    for library in (*LIBRARIES, OLDER_JAVA)
]


def transactional(fleet: Fleet, library: str, name: str, **settings: object) -> Client:
    producer = fleet.producer(library, f"{name}-{library}", transactional_id=f"{name}-{library}", **settings)
    producer.call("init")
    return producer


@pytest.mark.parametrize("library", WRITERS)
def test_a_transaction_is_seen_whole_or_not_at_all(library: str, fleet: Fleet, readers: Readers) -> None:
    """While it is open, a reader that does not wait for commits has all of it, and the others neither it nor
    what was written behind it. Once it is committed they have both. What was aborted they never have."""
    name = f"whole {library}"
    writer = transactional(fleet, library, "whole")
    writer.call("begin")
    first = write(writer, (0, f"{name} 0"), (1, f"{name} 1"), (0, f"{name} 2"))
    written = {f"{name} {n}" for n in range(3)}
    readers.write((0, f"{name} behind"))
    readers.hasty_sees(name, written | {f"{name} behind"})
    assert stable_end(readers, 0) == first[0][2]
    readers.all_see(name, set())
    writer.call("commit")
    readers.all_see(name, written | {f"{name} behind"})

    writer.call("begin")
    write(writer, (0, f"regretted {name}"), (1, f"regretted {name}"))
    writer.call("abort")
    readers.none_sees(f"regretted {name}")

    writer.call("begin")
    again = write(writer, (0, f"again {name}"))
    writer.call("commit")
    readers.all_see(f"again {name}", {f"again {name}"})
    assert stable_end(readers, 0) == again[0][2] + 2  # behind it stands its marker
    writer.close()


def stable_end(readers: Readers, partition: int) -> int:
    """Where the log ends for those who wait for commits."""
    reader = readers.patient[0]
    (row,) = reader.call("watermarks", partitions=[[TOPIC, partition]])
    return int(row[3])


@pytest.mark.parametrize("library", WRITERS)
def test_offsets_are_committed_with_the_records(library: str, fleet: Fleet, readers: Readers) -> None:
    """Until the transaction ends the group has what it had; those who want stable offsets are not answered
    before; an abort leaves the old ones, a commit brings the new ones."""
    group = f"shared-{library}"
    writer = transactional(fleet, library, "offsets")

    def transaction(offset: int, end: str) -> None:
        writer.call("begin")
        write(writer, (0, f"{group} {offset}"))
        writer.call("offsets", offsets=offsets_of(offset), group=group)
        before = group_offsets(readers.admin, group)
        assert [row[2] for row in before] == committed
        member = fleet.consumer(
            "confluent-kafka", group=group, assign=[[TOPIC, 0]], isolation_level="read_committed"
        )
        question = member.submit("committed", partitions=[[TOPIC, 0]])
        writer.call(end)
        answered = member.answer(question)[0][2]
        assert answered == (offset if end == "commit" else committed[0])
        member.close()

    committed: list[int] = []
    transaction(5, "commit")
    committed = [5, 6]
    assert group_offsets(readers.admin, group) == offsets_of(5)
    transaction(7, "abort")
    assert group_offsets(readers.admin, group) == offsets_of(5)
    transaction(9, "commit")
    assert group_offsets(readers.admin, group) == offsets_of(9)
    writer.close()


def offsets_of(offset: int) -> list[list[object]]:
    """The first one has no metadata: confluent-kafka may stumble over them."""
    return [[TOPIC, 0, offset, ""], [TOPIC, 1, offset + 1, f"of {offset}"]]


def test_the_broker_is_killed_in_the_middle(own_broker: Broker, tmp_path: Path) -> None:
    """Every library has a transaction open when the broker is killed. Each goes on with it when the broker is
    back, and ends it: what is committed is there whole, what is aborted is not."""
    with fleet_of(own_broker.bootstrap, tmp_path / "clients") as fleet:
        admin = fleet.admin("kafka-python", "admin")
        meet_the_coordinator(admin)
        readers = Readers(fleet, admin)
        wanted = [w.values[0] for w in WRITERS if not (w.marks and java_is_missing())]
        writers = {str(library): transactional(fleet, str(library), "killed") for library in wanted}
        for library, writer in writers.items():
            writer.call("begin")
            write(writer, (0, f"killed {library} before"), (1, f"killed {library} as well"))
        own_broker.kill9()
        own_broker.start()
        for library, writer in writers.items():
            write(writer, (0, f"killed {library} after"))
        readers.all_see("killed", set())
        for number, writer in enumerate(writers.values()):
            writer.call("abort" if number % 2 else "commit", within_s=40)
        ends = ("before", "as well", "after")
        readers.all_see("killed", {f"killed {library} {end}" for library in wanted[::2] for end in ends})
        readers.none_sees(f"killed {wanted[1]}")


@pytest.mark.java
@pytest.mark.parametrize("level", [1, 0])
def test_where_the_second_protocol_is_not_offered_java_speaks_the_first(
    level: int, own_broker: Broker, own_fleet: Fleet
) -> None:
    """Java's client follows the cluster's transaction.version: below 2 it keeps its epoch over transactions;
    from 2 on each transaction has an epoch of its own."""
    admin = own_fleet.admin("java", "admin")
    meet_the_coordinator(admin)
    admin.call("set_feature", feature="transaction.version", level=level)
    readers = Readers(own_fleet, admin)
    assert epochs(own_fleet, readers, "first", "java") == [0, 0, 0]
    admin.call("set_feature", feature="transaction.version", level=2, kind="UPGRADE")
    assert epochs(own_fleet, readers, "second", "java") == [1, 2, 3]
    assert epochs(own_fleet, readers, "older", OLDER_JAVA) == [0, 0, 0]


def epochs(fleet: Fleet, readers: Readers, name: str, library: str) -> list[int]:
    """A producer's epoch after each of three transactions, of which the second is aborted."""
    writer = transactional(fleet, library, name)
    found = []
    for number, end in enumerate(("commit", "abort", "commit")):
        writer.call("begin")
        write(writer, (0, f"{name} {number}"), (1, f"{name} {number} as well"))
        writer.call("offsets", offsets=[[TOPIC, 0, number + 1, ""]], group=name)
        writer.call(end)
        transactions = readers.admin.call("describe_transactions", ids=[f"{name}-{library}"])
        found.append(transactions[f"{name}-{library}"]["producer_epoch"])
    readers.all_see(name, {f"{name} {number}{more}" for number in (0, 2) for more in ("", " as well")})
    assert group_offsets(readers.admin, name) == [[TOPIC, 0, 3, ""]]
    writer.close()
    return found
