"""T9: while an application is given another topology, who still runs the one before gets nothing new."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from tests.groups.streams.members import Member, Play
from tests.groups.streams.test_invariants import FEW, LIVES, ODDS, TOPOLOGIES, WHO, Lives

from konvene.groups.assignors.sticky.assignor import assign
from konvene.groups.assignors.tasks.contract import (
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    Tasks,
    TopologyDescriber,
    checked,
)
from konvene.groups.streams import targets
from konvene.groups.streams.current_assignment import Role, units
from konvene.groups.streams.topology.stale_members import withhold_new_tasks

OLD, NEW = "0:orders", "0:orders|1:audit"
STATEFUL = TopologyDescriber({"0": Subtopology(3, stateful=True)})


def play(**settings: str) -> Play:
    found = Play(konvene_streams_mode="kip", **settings)
    for topic, partitions in (("orders", 9), ("audit", 1)):
        found.say(f"topic {topic} partitions={partitions}")
    return found


def settle(play: Play, *members: Member) -> None:
    for _ in range(6):
        for member in members:
            assert not member.beat(play)
    play.say("advance 100")


def runs(member: Member, subtopology: str = "0") -> set[int]:
    return {partition for role, name, partition in member.owns if (role, name) == ("active", subtopology)}


def again(play: Play, member: Member, topology: str) -> None:
    """It is bounced, and comes back with the topology of the next epoch."""
    member.leave(play)
    member.topology = f"{topology} topology-epoch=1"
    assert not member.beat(play)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_rolling_bounce_goes_as_the_proposal_says(elsewhere: bool) -> None:
    """Nine tasks of three members; at each step those who are behind keep some, and get none."""
    group = play()
    if elsewhere:
        group.say("heavy 0")

    def all_settle(*members: Member) -> None:
        for _ in range(3):
            settle(group, *members)
            group.say("work")
            settle(group, *members)

    ann, bob, cid = (Member(name, name, OLD) for name in ("ann", "bob", "cid"))
    all_settle(ann, bob, cid)
    assert [len(runs(member)) for member in (ann, bob, cid)] == [3, 3, 3]
    cid.leave(group)
    all_settle(ann, bob)
    had = {member.name: runs(member) for member in (ann, bob)}
    again(group, cid, NEW)
    all_settle(ann, bob, cid)
    for member in (ann, bob):
        assert runs(member) <= had[member.name]
        assert member.status == (0,)
    assert runs(cid)
    assert runs(ann) | runs(bob) | runs(cid) == set(range(9))
    assert runs(cid, "1") == {0}
    kept = runs(ann)
    bob.leave(group)
    all_settle(ann, cid)
    assert runs(ann) <= kept
    assert runs(ann) | runs(cid) == set(range(9))
    again(group, bob, NEW)
    all_settle(ann, bob, cid)
    assert runs(ann) <= kept
    assert runs(bob)
    again(group, ann, NEW)
    all_settle(ann, bob, cid)
    assert runs(ann) | runs(bob) | runs(cid) == set(range(9))
    assert ann.status == bob.status == cid.status == ()


def test_what_only_members_could_run_that_are_behind_nobody_runs() -> None:
    """The one that brought the topology is gone; its tasks wait for somebody else who has it."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    again(group, bob, NEW)
    settle(group, ann, bob)
    had = runs(ann)
    bob.leave(group)
    settle(group, ann)
    assert (runs(ann), runs(ann, "1")) == (had, set())
    again(group, bob, NEW)
    settle(group, ann, bob)
    assert runs(ann) | runs(bob) == set(range(9))
    assert runs(bob, "1") == {0}


def test_who_is_behind_may_say_that_it_has_tasks_that_there_are_no_more() -> None:
    """They are of its own topology: it is told to give them up, and not that it is wrong."""
    group = play()
    ann, bob = Member("ann", "p", NEW), Member("bob", "q", NEW)
    settle(group, ann, bob)
    (has_it,) = (member for member in (ann, bob) if runs(member, "1"))
    other = ann if has_it is bob else bob
    again(group, other, OLD)
    settle(group, ann, bob)
    assert has_it.status == (0,)
    assert runs(has_it, "1") == set()
    assert runs(ann) | runs(bob) == set(range(9))


def test_the_invariant_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that gives who is behind something new does not pass."""
    monkeypatch.setattr(targets, "withhold_new_tasks", lambda stale, spec, given, stateful: given)
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    again(group, bob, NEW)
    settle(group, ann, bob)
    bob.leave(group)
    with pytest.raises(AssertionError, match="is behind the topology, and is to have"):
        settle(group, ann)


# --- what takes the place of what they do not get --------------------------------------------------


def has(
    active: tuple[int, ...] = (), standby: tuple[int, ...] = (), warmup: tuple[int, ...] = ()
) -> MemberAssignment:
    def tasks(partitions: tuple[int, ...]) -> Tasks:
        return {"0": partitions} if partitions else {}

    return MemberAssignment(tasks(active), tasks(standby), tasks(warmup))


def group(**members: tuple[str, MemberAssignment]) -> GroupSpec:
    return GroupSpec({name: AssignmentMemberSpec(process, held) for name, (process, held) in members.items()})


def always(subtopology: str) -> bool:
    """Whether there is state."""
    return True


def test_who_has_a_standby_of_a_task_becomes_active_and_another_gets_the_standby() -> None:
    """Rather than who has less to do."""
    spec = group(old=("p", has((0,))), copy=("q", has((), (1,))), idle=("r", has()))
    given = {"old": has((0, 1)), "copy": has((2,), (1,)), "idle": has((), (0,))}
    assert withhold_new_tasks(["old"], spec, given, always) == {
        "old": has((0,)),
        "copy": has((1, 2)),
        "idle": has((), (0, 1)),
    }


def test_who_has_least_gets_what_nobody_has_a_copy_of() -> None:
    """Actives count first. A standby goes to a process that has none of the task, if there is one."""
    spec = group(old=("p", has((0,))), a=("q", has()), b=("r", has()))
    given = {"old": has((0, 1), (2,)), "a": has((2,)), "b": has()}
    assert withhold_new_tasks(["old"], spec, given, always) == {
        "old": has((0,)),
        "a": has((2,)),
        "b": has((1,), (2,)),
    }
    alone = group(old=("p", has()), a=("q", has()))
    both = {"old": has((), (0,)), "a": has((0,))}
    assert withhold_new_tasks(["old"], alone, both, always) == {"old": has(), "a": has((0,))}


def test_another_role_is_something_new() -> None:
    """Of what it has as well: neither a promotion nor a demotion is for who is behind. It keeps the standby
    that was to be promoted, where nobody needs its place."""
    spec = group(old=("p", has((0,), (1,))), a=("q", has((1,), (0,))))
    given = {"old": has((1,), (0,)), "a": has((0,), (1,))}
    assert withhold_new_tasks(["old"], spec, given, always) == {"old": has((), (1,)), "a": has((0, 1))}


def test_a_process_has_a_task_once_also_where_some_of_it_are_behind() -> None:
    """Where the only member that may run it shares a disk with a standby of one that is behind, that goes."""
    spec = group(old=("p", has((), (0,))), new=("p", has()), far=("q", has()))
    given = {"old": has((), (0,)), "new": has(), "far": has((0,))}
    assert withhold_new_tasks(["old", "far"], spec, given, always) == {
        "old": has(),
        "new": has((0,)),
        "far": has(),
    }


@pytest.mark.parametrize("stale", [["warm"], ["warm", "owner"]])
def test_a_warm_up_of_who_is_behind_is_never_promoted(stale: list[str]) -> None:
    """Its task stays with who runs it, and does not go to somebody who has nothing of it; the copy is no
    warm-up any more. So also where its owner was to stand by for it from now on."""
    spec = group(owner=("p", has((0, 1))), warm=("q", has((), (), (1,))), new=("r", has()))
    for left in (has((0,)), has((0,), (1,))):
        given = {"owner": left, "warm": has((1,)), "new": has()}
        found = withhold_new_tasks(stale, spec, given, always)
        assert (found["owner"], found["warm"].active, found["warm"].warmup) == (has((0, 1)), {}, {})
        assert found["new"].active == {}


def test_who_warms_a_task_up_is_the_next_to_run_it() -> None:
    """Where nobody runs it, rather than who has less to do. A warm-up that nobody is given stays nobody's."""
    spec = group(old=("p", has()), warm=("q", has((), (), (1,))), idle=("r", has()))
    given = {"old": has((1,), (), (2,)), "warm": has((0, 2), (), (1,)), "idle": has()}
    assert withhold_new_tasks(["old"], spec, given, always) == {
        "old": has(),
        "warm": has((0, 1, 2)),
        "idle": has(),
    }


def test_warm_ups_that_are_there_stay_and_none_is_twice_on_a_process() -> None:
    """Of a task that stays where it is, another member of its process has no copy."""
    spec = group(
        old=("p", has((), (), (0,))), owner=("q", has((1,))), near=("q", has()), new=("r", has((0,)))
    )
    given = {"old": has((1,), (), (0,)), "owner": has(), "near": has((), (), (1,)), "new": has((0,))}
    assert withhold_new_tasks(["old"], spec, given, always) == {
        "old": has((), (), (0,)),
        "owner": has((1,)),
        "near": has(),
        "new": has((0,)),
    }


def test_without_state_a_task_that_is_to_move_moves_to_who_is_up_to_date() -> None:
    """Nothing is lost by it, and its owner was to have less; where all are behind it stays."""
    spec = group(a=("p", has((0, 1, 2))), b=("q", has()), new=("r", has()))
    given = {"a": has((0,)), "b": has((1,)), "new": has((2,))}

    def never(subtopology: str) -> bool:
        return False

    assert withhold_new_tasks("ab", spec, given, never) == {"a": has((0,)), "b": has(), "new": has((1, 2))}
    assert withhold_new_tasks(["a", "b", "new"], spec, given, never) == {
        "a": has((0, 1, 2)),
        "b": has(),
        "new": has(),
    }


def test_random_groups_keep_all_rules() -> None:
    """What they get they had, every task has its owner, no process has one twice; who is not concerned has
    the very value that it was given."""
    changed = 0
    for seed in range(300):
        random = Random(seed)
        topology = TopologyDescriber(
            {name: Subtopology(random.randint(1, 6), random.random() < 0.7) for name in ("0", "1")}
        )
        names = [f"m{i}" for i in range(random.randint(2, 7))]
        processes = {name: random.choice("pqrs") for name in names}
        configs = AssignmentConfigs(random.choice((0, 1, 2)))
        some = {n: AssignmentMemberSpec(processes[n]) for n in names if random.random() < 0.6}
        before = assign(GroupSpec(some, configs), topology) if some else {}
        spec = GroupSpec(
            {n: AssignmentMemberSpec(processes[n], before.get(n, has())) for n in names}, configs
        )
        stale = [n for n in names if random.random() < 0.5]
        given = assign(spec, topology)
        found = checked(spec, topology, withhold_new_tasks(stale, spec, given, topology.is_stateful))
        told = {n: units(f.active, f.standby, f.warmup) for n, f in found.items()}
        held = {n: units(m.assigned.active, m.assigned.standby, {}) for n, m in spec.members.items()}
        assert all(told[n] <= held[n] for n in stale)
        if len(stale) < len(names):
            active = {unit for has in told.values() for unit in has if unit[0] is Role.ACTIVE}
            assert len(active) == sum(each.partitions for each in topology.subtopologies.values())
        changed += found != given
        if found == given:
            assert withhold_new_tasks(stale, spec, given, topology.is_stateful) == given
    assert changed > 50


# --- random lives ----------------------------------------------------------------------------------


class Upgrades(Lives):
    """Lives in which applications are given other topologies; each step is held against every invariant."""

    def __init__(self) -> None:
        super().__init__()
        self.play.say("config konvene.streams.mode=kip")

    @rule(who=WHO, topology=st.sampled_from(TOPOLOGIES), leaves=st.booleans(), settles=st.booleans())
    def is_given_another_topology(self, who: int, topology: str, leaves: bool, settles: bool) -> None:
        """One is bounced, and comes back with the next one; or with that which is there by now."""
        member, group = self.members[who], self.play.group
        epoch = group.topology_epoch if group is not None else -1
        if leaves:
            member.leave(self.play)
        member.forget(anew=True)
        member.topology = f"{topology} topology-epoch={epoch + 1}"
        if settles:
            self.all_act(rounds=2, ms=500)

    @rule(who=WHO)
    def follows(self, who: int) -> None:
        """One more is given what another one has."""
        newest = max((member.topology for member in self.members), key=lambda told: told.rpartition("=")[2])
        self.comes_anew(who, leaves=True, moves=False)
        self.members[who].topology = newest

    @rule(who=WHO, lost=ODDS, slow=ODDS, says=st.booleans())
    def acts(self, who: int, lost: bool, slow: bool, says: bool) -> None:
        """Who comes back with a topology of the past is refused."""
        self.members[who].beat(self.play, lost=lost, slow=slow, says=says)

    @invariant()
    def everybody_knows_what_it_is_told(self) -> None:
        """A member that is given a task of a subtopology that it does not have ends, and its group waits."""
        for member in self.members:
            known = {part.partition(":")[0] for part in member.topology.split()[0].split("|")}
            told = {name for _, name, _ in member.told}
            assert told <= known, f"{member.name} runs {member.topology}, and is told {sorted(member.told)}"


TestUpgrades = Upgrades.TestCase
TestUpgrades.settings = settings(max_examples=LIVES or 30, **FEW)  # type: ignore[arg-type]
