"""A group moves from the classic protocol to the consumer protocol and back while it works (moves.py plays
it); who may not move; and what becomes of a group that is empty, or whose last new member dies."""

import itertools
from pathlib import Path

import pytest

from ..clients import fleet_of
from ..conftest import Admins, a_broker, java_is_missing
from .conftest import SETTINGS
from .group import CONFLUENT, KAFKA_PYTHON, Group, is_refused
from .moves import COOPERATIVE, MOVES, Move, Moves, Played
from .test_members import EACH

NO_SUCH_GROUP = "The group id does not exist"
"""librdkafka's words for GROUP_ID_NOT_FOUND (69)."""

EACH_MOVE = [pytest.param(m, id=str(m), marks=[pytest.mark.java] if m.needs_java else []) for m in MOVES]


@pytest.fixture(scope="module", autouse=True)
def _begin_moves(moves: Moves, request: pytest.FixtureRequest) -> None:
    """The moves that this run will ask about begin at once."""
    calls = [getattr(i, "callspec", None) for i in request.session.items if i.path.samefile(__file__)]
    selected_moves = {call.params["move"]: None for call in calls if call and "move" in call.params}
    moves.begin(move for move in selected_moves if not (move.needs_java and java_is_missing()))


@pytest.fixture
def played(move: Move, moves: Moves, request: pytest.FixtureRequest) -> Played:
    return moves.of(move, request)


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

    def test_the_group_holds_its_invariants(self, played: Played) -> None:
        """Each acknowledged value was read, no partition had two owners, nothing committed was read again."""
        played.group.keeps()

    def test_history_records_upgrade_and_downgrade(self, played: Played) -> None:
        """Upgrade and downgrade are recorded once each, even where no epoch changed."""
        past = played.group.past()
        if past is None:
            pytest.skip("only konvene tells why a group rebalanced")
        causes = {cause for rebalance in past for cause in rebalance.causes}
        description = sorted((c.kind, c.client_id) for c in causes if c.kind in ("upgraded", "downgraded"))
        first = f"{played.group.name}-consumer-0"
        last = f"{played.group.name}-consumer-{(len(played.steps) - 1) // 2 - 1}"
        assert description == [("downgraded", last), ("upgraded", first)]


@pytest.mark.parametrize("move", [param for param in EACH_MOVE if "static" in str(param.id)])
def test_static_members_change_their_protocol_without_a_rebalance(played: Played) -> None:
    """A restarted static member has its former partitions, and the other one keeps its own."""
    founders = (len(played.steps) - 1) // 2
    for member in played.group.members[founders:]:
        assert len(member.of("assigned")) == 1, member.story()
        assert [e for e in member.of("revoked") if e["at"] < (member.ended_ns or e["at"] + 1)] == []


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


def test_empty_group_takes_the_protocol_of_the_next_member(group: Group) -> None:
    """An empty group becomes classic, consumer and classic again with its next member; its offsets are kept,
    so that nothing is read again."""
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
    """A member that may not change the group's protocol gets GROUP_ID_NOT_FOUND (69) or
    INCONSISTENT_GROUP_PROTOCOL (23); the present members are not disturbed."""
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
