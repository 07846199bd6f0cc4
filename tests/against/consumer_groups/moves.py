"""A group's move from the classic protocol to the consumer protocol and back, played once and checked by
many tests: each member in turn is closed and comes again in the other protocol, and the producer never stops
(KIP-848).

A `Move` has the members. The moves of a run begin together and are played three at a time, for most of each
is waiting.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..brokers import Broker
from ..clients import Client, Fleet, Partition
from ..conftest import Admins
from ..tries import Plays
from .group import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, Group

EAGER, COOPERATIVE = "range", "cooperative-sticky"


@dataclass(frozen=True)
class Move:
    """Each member's library while it is classic, and the one it has in the consumer protocol. The last one
    leads the classic group: librdkafka's may not, where it is cooperative (see the refusal below)."""

    name: str
    assignor: str
    libraries: tuple[tuple[str, str], ...]
    static: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def needs_java(self) -> bool:
        return JAVA in itertools.chain(*self.libraries)


MOVES = [
    Move("java-eager", EAGER, ((JAVA, JAVA),) * 3),
    Move("java-cooperative", COOPERATIVE, ((JAVA, JAVA),) * 3),
    Move("confluent-eager", EAGER, ((CONFLUENT, CONFLUENT),) * 3),
    Move("mixed-cooperative", COOPERATIVE, ((CONFLUENT, JAVA), (CONFLUENT, CONFLUENT), (JAVA, CONFLUENT))),
    Move("mixed-eager", EAGER, ((KAFKA_PYTHON, CONFLUENT), (AIOKAFKA, JAVA), (CONFLUENT, CONFLUENT))),
    Move("mixed-static-eager", EAGER, ((CONFLUENT, JAVA), (JAVA, CONFLUENT)), static=True),
    Move("static-cooperative", COOPERATIVE, ((JAVA, CONFLUENT), (JAVA, JAVA)), static=True),
]


@dataclass
class Step:
    """One member's change of protocol, and what the group was and had committed after it."""

    what: str
    kind: str | None
    committed: dict[Partition, int]


@dataclass
class Played:
    """What happened: the group with all its members, and what was noted on the way."""

    group: Group
    static: bool
    steps: list[Step] = field(default_factory=list)


Moves = Plays[Move, Played]


def play(move: Move, again: str, fleet: Fleet, admins: Admins, broker: Broker) -> Played:
    """Play a migration; a TimeoutError names the step after which the partitions were not shared evenly."""
    group = Group(f"move-{move}{again}", fleet, admins, broker)
    played = Played(group, move.static)
    group.has()
    group.is_fed()
    founders = [group.launch(library, f"classic-{n}") for n, (library, _) in enumerate(move.libraries)]
    leader = enter(move, group, founders[-1], len(founders) - 1, "classic")
    group.share(leader)
    here = [enter(move, group, client, n, "classic") for n, client in enumerate(founders[:-1])]
    here.append(leader)
    group.share(*here)
    note(played, "all are classic")
    for protocol, number, client in turns(move, group):
        client.until("greeting", lambda client=client: client.of("ready"))
        here[number].close()
        here[number] = enter(move, group, client, number, protocol)
        group.share(*here)
        group.is_read_by(*here)
        note(played, f"{number} is {protocol}")
    group.all_is_read()
    return played


def turns(move: Move, group: Group) -> Iterator[tuple[str, int, Client]]:
    """Who changes to what, with the process that is to be it: it starts while the one before it enters."""
    order = [
        (protocol, number) for protocol in ("consumer", "classic") for number in range(len(move.libraries))
    ]
    launched = []
    for at, (protocol, number) in enumerate(order):
        for protocol_, number_ in order[len(launched) : at + 2]:
            library = move.libraries[number_][protocol_ == "consumer"]
            name = {"consumer": "consumer", "classic": "again"}[protocol_]
            launched.append(group.launch(library, f"{name}-{number_}"))
        yield protocol, number, launched[at]


def enter(move: Move, group: Group, client: Client, number: int, protocol: str) -> Client:
    settings: dict[str, Any] = {"instance_id": f"desk-{number}"} if move.static else {}
    if protocol == "classic":
        settings["assignor"] = move.assignor
    return group.give(client, protocol, **settings)


def note(played: Played, what: str) -> None:
    group = played.group
    played.steps.append(Step(what, group.kind(), group.committed()))
