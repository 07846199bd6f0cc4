"""A group moves from the classic protocol to the consumer protocol and back while it works: each member in
turn is closed and comes again in the other protocol, and the producer never stops (KIP-848).

A `Move` says who plays. The moves of a run are played two at a time, for most of each is waiting; the tests
ask what came of them.
"""

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..brokers import Broker
from ..clients import Client, Fleet, Partition, fleet_of
from ..conftest import Admins, a_broker, java_is_missing
from ..history import missing
from .conftest import SETTINGS
from .group import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, Group, is_refused
from .test_members import EACH

NO_SUCH_GROUP = "The group id does not exist"
"""librdkafka's words for GROUP_ID_NOT_FOUND (69)."""

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
EACH_MOVE = [pytest.param(m, id=str(m), marks=[pytest.mark.java] if m.needs_java else []) for m in MOVES]


@dataclass
class Step:
    """One member's change of protocol, and what the group was and had committed after it."""

    what: str
    kind: str | None
    committed: dict[Partition, int]


@dataclass
class Played:
    group: Group
    steps: list[Step] = field(default_factory=list)


def play(move: Move, fleet: Fleet, admins: Admins, broker: Broker) -> Played:
    """TimeoutError tells after which step the living did not share all partitions evenly."""
    group = Group(f"move-{move}", fleet, admins, broker)
    played = Played(group)
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


class Moves:
    """Plays each move once, and keeps what came of it, be it a failure."""

    def __init__(self, fleet: Fleet, admins: Admins, broker: Broker) -> None:
        self._play = lambda move: play(move, fleet, admins, broker)
        self._pool = ThreadPoolExecutor(max_workers=2)
        self._played: dict[Move, Future[Played]] = {}

    def begin(self, moves: list[Move]) -> None:
        for move in moves:
            self._played[move] = self._pool.submit(self._play, move)

    def of(self, move: Move) -> Played:
        return self._played[move].result(timeout=240)

    def end(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def moves(
    broker: Broker,
    admins: Admins,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Moves]:
    asked = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = dict.fromkeys(call.params["move"] for call in asked if call and "move" in call.params)
    with fleet_of(broker.bootstrap, tmp_path_factory.mktemp("moves")) as fleet:
        moves = Moves(fleet, admins, broker)
        moves.begin([move for move in wanted if not (move.needs_java and java_is_missing())])
        try:
            yield moves
        finally:
            moves.end()


@pytest.fixture
def played(move: Move, moves: Moves) -> Played:
    return moves.of(move)


@pytest.mark.parametrize("move", EACH_MOVE)
class TestAMove:
    """All to the consumer protocol, one by one, and all back."""

    def test_each_step_leaves_the_group_whole(self, played: Played) -> None:
        """After each step the living soon hold all partitions, evenly, and all of them read: the play waits
        for that."""
        steps = len(played.steps)
        assert len(played.group.members) == (steps - 1) // 2 + steps - 1

    def test_the_group_is_of_the_new_kind_as_long_as_one_member_is(self, played: Played) -> None:
        """With the first member of the consumer protocol it becomes a consumer group, and with the last one's
        leave a classic group again."""
        half = len(played.steps) // 2
        wanted = ["Classic"] + ["Consumer"] * (2 * half - 1) + ["Classic"]
        assert [(step.what, step.kind) for step in played.steps] == [
            (step.what, kind) for step, kind in zip(played.steps, wanted, strict=True)
        ]

    def test_offsets_are_kept(self, played: Played) -> None:
        """What the group has committed never goes back, and is never forgotten, over any step."""
        for before, after in itertools.pairwise(played.steps):
            lost = {p: o for p, o in before.committed.items() if after.committed.get(p, -1) < o}
            assert lost == {}, f"{before.what} -> {after.what}"

    def test_the_group_keeps_its_promises(self, played: Played) -> None:
        """Each acknowledged value was read, no partition had two owners, nothing committed was read again."""
        played.group.keeps()

    def test_konvene_tells_why(self, played: Played) -> None:
        past = played.group.past()
        if past is None:
            pytest.skip("only konvene tells why a group rebalanced")
        kinds = [cause.kind for rebalance in past for cause in rebalance.causes]
        assert kinds.count("upgraded") == 1 and kinds.count("downgraded") == 1, kinds
        assert missing(past, [("upgraded", played.group.members[len(played.steps) // 2].name)]) == []


@pytest.mark.parametrize("library", EACH)
def test_user_data_in_an_assignment_forbids_the_upgrade(library: str, group: Group) -> None:
    """Where librdkafka leads, it sends the user data of a member's subscription back with its assignment, and
    cooperative members have some. The broker could not keep it, and so refuses members of the consumer
    protocol as long as these are there (GROUP_ID_NOT_FOUND). They go on."""
    group.has()
    leader = group.join(CONFLUENT, "leader", protocol="classic", assignor=COOPERATIVE)
    group.share(leader)
    member = group.join(library, "member", protocol="classic", assignor=COOPERATIVE)
    group.share(leader, member)
    newcomer = group.join(library, "newcomer")
    is_refused(newcomer, 69, NO_SUCH_GROUP)
    assert group.kind() == "Classic"
    group.share(leader, member)


@pytest.mark.parametrize("library", EACH)
def test_the_last_of_the_new_protocol_dies(library: str, group: Group) -> None:
    """When its session is over the classic members that are left are a classic group, and have everything."""
    group.has()
    group.expires_soon()
    group.is_fed()
    dies = group.join(library, "dies")
    stays = group.join(KAFKA_PYTHON, "stays", protocol="classic")
    group.share(dies, stays)
    group.is_read_by(dies, stays)
    assert group.kind() == "Consumer"
    dies.kill()
    group.share(stays)
    group.becomes("Classic")
    group.is_read_by(stays)
    group.keeps()


def test_an_empty_group_is_of_the_kind_of_whoever_comes(group: Group) -> None:
    """Classic, consumer and classic again, each time after it was empty: its offsets are kept, and nobody
    reads again what one before it has read."""
    group.has()
    group.is_fed()
    for number, protocol in enumerate(("classic", "consumer", "classic")):
        member = group.join(CONFLUENT, f"{protocol}-{number}", protocol=protocol)
        group.share(member)
        group.is_read_by(member)
        assert group.kind() == protocol.capitalize()
        if number < 2:
            before = group.committed()
            member.close()
            assert {p: o for p, o in before.items() if group.committed()[p] < o} == {}
    group.keeps()


REFUSALS = {
    # What the migration policy is: who founds the group, who is refused, with which code.
    "disabled": [("classic", "consumer", 69), ("consumer", "classic", 23)],
    "upgrade": [("consumer", "classic", None)],
    "downgrade": [("classic", "consumer", 69)],
}


@pytest.mark.parametrize("policy", REFUSALS)
def test_the_migration_policy(policy: str, tmp_path: Path) -> None:
    """Who may not change a group's protocol is told GROUP_ID_NOT_FOUND (69) or INCONSISTENT_GROUP_PROTOCOL
    (23), and who is there is not disturbed."""
    broker = a_broker(tmp_path / "broker", SETTINGS | {"group.consumer.migration.policy": policy})
    broker.start()
    try:
        with fleet_of(broker.bootstrap, tmp_path / "clients") as fleet:
            admins = Admins(fleet)
            for number, (founder, stranger, code) in enumerate(REFUSALS[policy]):
                group = Group(f"policy-{number}", fleet, admins, broker)
                group.has()
                first = group.join(CONFLUENT, "first", protocol=founder)
                group.share(first)
                second = group.join(CONFLUENT, "second", protocol=stranger)
                if code is None:
                    group.share(first, second)
                else:
                    error = second.until("a refusal", lambda second=second: second.of("error"))[0]["error"]
                    assert error["code"] == code or NO_SUCH_GROUP in error["message"], error
                    assert first.holds() == group.partitions
    finally:
        broker.kill9()
