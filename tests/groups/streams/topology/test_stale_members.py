"""T9: while an application gets another topology, members of the former topology get no new tasks."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from tests import depth
from tests.groups.streams.members import Member, Play
from tests.groups.streams.test_invariants import EXAMPLES, FEW, MEMBER, ODDS, TOPOLOGIES, StreamsGroupMachine

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
        found.run(f"topic {topic} partitions={partitions}")
    return found


def settle(play: Play, *members: Member) -> None:
    for _ in range(6):
        for member in members:
            assert not member.beat(play)
    play.run("advance 100")


def runs(member: Member, subtopology: str = "0") -> set[int]:
    return {partition for role, name, partition in member.owns if (role, name) == ("active", subtopology)}


def bounce(play: Play, member: Member, topology: str) -> None:
    """Bounce a member, which comes back with the topology of the next epoch."""
    member.leave(play)
    member.topology = f"{topology} topology-epoch=1"
    assert not member.beat(play)


@pytest.mark.parametrize("in_background", [False, True])
def test_a_rolling_bounce_follows_the_kip(in_background: bool) -> None:
    """Nine tasks of three members; at each step stale members keep some of their tasks, and get none."""
    group = play()
    if in_background:
        group.run("heavy 0")

    def settle_with_work(*members: Member) -> None:
        for _ in range(3):
            settle(group, *members)
            group.run("work")
            settle(group, *members)

    ann, bob, cid = (Member(name, name, OLD) for name in ("ann", "bob", "cid"))
    settle_with_work(ann, bob, cid)
    assert [len(runs(member)) for member in (ann, bob, cid)] == [3, 3, 3]
    cid.leave(group)
    settle_with_work(ann, bob)
    before = {member.name: runs(member) for member in (ann, bob)}
    bounce(group, cid, NEW)
    settle_with_work(ann, bob, cid)
    for member in (ann, bob):
        assert runs(member) <= before[member.name]
        assert member.status == (0,)
    assert runs(cid)
    assert runs(ann) | runs(bob) | runs(cid) == set(range(9))
    assert runs(cid, "1") == {0}
    kept = runs(ann)
    bob.leave(group)
    settle_with_work(ann, cid)
    assert runs(ann) <= kept
    assert runs(ann) | runs(cid) == set(range(9))
    bounce(group, bob, NEW)
    settle_with_work(ann, bob, cid)
    assert runs(ann) <= kept
    assert runs(bob)
    bounce(group, ann, NEW)
    settle_with_work(ann, bob, cid)
    assert runs(ann) | runs(bob) | runs(cid) == set(range(9))
    assert ann.status == bob.status == cid.status == ()


def test_tasks_stay_unassigned_if_all_members_are_stale() -> None:
    """The member that brought the topology left; its tasks wait for another member that has it."""
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    bounce(group, bob, NEW)
    settle(group, ann, bob)
    before = runs(ann)
    bob.leave(group)
    settle(group, ann)
    assert (runs(ann), runs(ann, "1")) == (before, set())
    bounce(group, bob, NEW)
    settle(group, ann, bob)
    assert runs(ann) | runs(bob) == set(range(9))
    assert runs(bob, "1") == {0}


def test_a_stale_member_may_report_tasks_of_removed_subtopologies() -> None:
    """They belong to its own topology: it has to revoke them, and its heartbeat is valid."""
    group = play()
    ann, bob = Member("ann", "p", NEW), Member("bob", "q", NEW)
    settle(group, ann, bob)
    (owner,) = (member for member in (ann, bob) if runs(member, "1"))
    other = ann if owner is bob else bob
    bounce(group, other, OLD)
    settle(group, ann, bob)
    assert owner.status == (0,)
    assert runs(owner, "1") == set()
    assert runs(ann) | runs(bob) == set(range(9))


def test_the_invariant_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that gives a stale member a new task violates it."""
    monkeypatch.setattr(targets, "withhold_new_tasks", lambda stale, spec, target, stateful: target)
    group = play()
    ann, bob = Member("ann", "p", OLD), Member("bob", "q", OLD)
    settle(group, ann, bob)
    bounce(group, bob, NEW)
    settle(group, ann, bob)
    bob.leave(group)
    with pytest.raises(AssertionError, match="has an older topology, but is to get"):
        settle(group, ann)


# --- replacements for withheld tasks ---------------------------------------------------------------


def assignment(
    active: tuple[int, ...] = (), standby: tuple[int, ...] = (), warmup: tuple[int, ...] = ()
) -> MemberAssignment:
    def tasks(partitions: tuple[int, ...]) -> Tasks:
        return {"0": partitions} if partitions else {}

    return MemberAssignment(tasks(active), tasks(standby), tasks(warmup))


def group(**members: tuple[str, MemberAssignment]) -> GroupSpec:
    return GroupSpec({name: AssignmentMemberSpec(process, held) for name, (process, held) in members.items()})


def always(subtopology: str) -> bool:
    """Treat every subtopology as stateful."""
    return True


def test_a_withheld_task_goes_to_its_standby_and_the_standby_elsewhere() -> None:
    """Rather than the member with the fewest tasks."""
    spec = group(old=("p", assignment((0,))), copy=("q", assignment((), (1,))), idle=("r", assignment()))
    target = {"old": assignment((0, 1)), "copy": assignment((2,), (1,)), "idle": assignment((), (0,))}
    assert withhold_new_tasks(["old"], spec, target, always) == {
        "old": assignment((0,)),
        "copy": assignment((1, 2)),
        "idle": assignment((), (0, 1)),
    }


def test_a_withheld_task_without_a_copy_goes_to_the_member_with_the_fewest() -> None:
    """Active tasks count first. A standby goes to a process without a copy of the task, if there is one."""
    spec = group(old=("p", assignment((0,))), a=("q", assignment()), b=("r", assignment()))
    target = {"old": assignment((0, 1), (2,)), "a": assignment((2,)), "b": assignment()}
    assert withhold_new_tasks(["old"], spec, target, always) == {
        "old": assignment((0,)),
        "a": assignment((2,)),
        "b": assignment((1,), (2,)),
    }
    alone = group(old=("p", assignment()), a=("q", assignment()))
    both = {"old": assignment((), (0,)), "a": assignment((0,))}
    assert withhold_new_tasks(["old"], alone, both, always) == {"old": assignment(), "a": assignment((0,))}


def test_a_changed_role_is_a_new_task() -> None:
    """Neither a promotion nor a demotion is for a stale member. It keeps the standby that was to be promoted,
    unless it is needed elsewhere."""
    spec = group(old=("p", assignment((0,), (1,))), a=("q", assignment((1,), (0,))))
    target = {"old": assignment((1,), (0,)), "a": assignment((0,), (1,))}
    assert withhold_new_tasks(["old"], spec, target, always) == {
        "old": assignment((), (1,)),
        "a": assignment((0, 1)),
    }


def test_a_process_with_stale_members_has_each_task_once() -> None:
    """If the only member that may run it shares a disk with a standby of a stale member, the standby is
    dropped."""
    spec = group(old=("p", assignment((), (0,))), new=("p", assignment()), far=("q", assignment()))
    target = {"old": assignment((), (0,)), "new": assignment(), "far": assignment((0,))}
    assert withhold_new_tasks(["old", "far"], spec, target, always) == {
        "old": assignment(),
        "new": assignment((0,)),
        "far": assignment(),
    }


@pytest.mark.parametrize("stale", [["warm"], ["warm", "owner"]])
def test_a_stale_members_warm_up_is_never_promoted(stale: list[str]) -> None:
    """Its task stays with its active member, and does not go to a member without a copy; the copy is no
    warm-up any more. The same if the active member was to become a standby."""
    spec = group(
        owner=("p", assignment((0, 1))), warm=("q", assignment((), (), (1,))), new=("r", assignment())
    )
    for left in (assignment((0,)), assignment((0,), (1,))):
        target = {"owner": left, "warm": assignment((1,)), "new": assignment()}
        found = withhold_new_tasks(stale, spec, target, always)
        assert (found["owner"], found["warm"].active, found["warm"].warmup) == (assignment((0, 1)), {}, {})
        assert found["new"].active == {}


def test_a_withheld_task_goes_to_its_warm_up() -> None:
    """If the task has no active member, rather than the member with the fewest tasks. A warm-up that is not
    in the target is not assigned elsewhere."""
    spec = group(old=("p", assignment()), warm=("q", assignment((), (), (1,))), idle=("r", assignment()))
    target = {"old": assignment((1,), (), (2,)), "warm": assignment((0, 2), (), (1,)), "idle": assignment()}
    assert withhold_new_tasks(["old"], spec, target, always) == {
        "old": assignment(),
        "warm": assignment((0, 1, 2)),
        "idle": assignment(),
    }


def test_existing_warm_ups_stay_and_no_process_has_two_copies() -> None:
    """A task that stays with its owner gets no copy on another member of the owner's process."""
    spec = group(
        old=("p", assignment((), (), (0,))),
        owner=("q", assignment((1,))),
        near=("q", assignment()),
        new=("r", assignment((0,))),
    )
    target = {
        "old": assignment((1,), (), (0,)),
        "owner": assignment(),
        "near": assignment((), (), (1,)),
        "new": assignment((0,)),
    }
    assert withhold_new_tasks(["old"], spec, target, always) == {
        "old": assignment((), (), (0,)),
        "owner": assignment((1,)),
        "near": assignment(),
        "new": assignment((0,)),
    }


def test_a_stateless_task_moves_to_an_up_to_date_member() -> None:
    """No state is lost, and its owner was to have fewer tasks; if all members are stale the task stays."""
    spec = group(a=("p", assignment((0, 1, 2))), b=("q", assignment()), new=("r", assignment()))
    target = {"a": assignment((0,)), "b": assignment((1,)), "new": assignment((2,))}

    def never(subtopology: str) -> bool:
        return False

    assert withhold_new_tasks("ab", spec, target, never) == {
        "a": assignment((0,)),
        "b": assignment(),
        "new": assignment((1, 2)),
    }
    assert withhold_new_tasks(["a", "b", "new"], spec, target, never) == {
        "a": assignment((0, 1, 2)),
        "b": assignment(),
        "new": assignment(),
    }


def test_withholding_keeps_all_rules_in_random_groups() -> None:
    """Stale members get only tasks that they had, every task has one owner, no process has a task twice, and
    the values of unaffected members are not copied."""
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
            {n: AssignmentMemberSpec(processes[n], before.get(n, assignment())) for n in names}, configs
        )
        stale = [n for n in names if random.random() < 0.5]
        target = assign(spec, topology)
        found = checked(spec, topology, withhold_new_tasks(stale, spec, target, topology.is_stateful))
        assigned = {n: units(f.active, f.standby, f.warmup) for n, f in found.items()}
        held = {n: units(m.assigned.active, m.assigned.standby, {}) for n, m in spec.members.items()}
        assert all(assigned[n] <= held[n] for n in stale)
        if len(stale) < len(names):
            active = {unit for units_of in assigned.values() for unit in units_of if unit[0] is Role.ACTIVE}
            assert len(active) == sum(each.partitions for each in topology.subtopologies.values())
        changed += found != target
        if found == target:
            assert withhold_new_tasks(stale, spec, target, topology.is_stateful) == target
    assert changed > 50


# --- random runs -----------------------------------------------------------------------------------


class Upgrades(StreamsGroupMachine):
    """Random runs in which applications get other topologies; each step is checked against every
    invariant."""

    def __init__(self) -> None:
        super().__init__()
        self.play.run("config konvene.streams.mode=kip")

    @rule(who=MEMBER, topology=st.sampled_from(TOPOLOGIES), leaves=st.booleans(), settles=st.booleans())
    def gets_another_topology(self, who: int, topology: str, leaves: bool, settles: bool) -> None:
        """Bounce a member, with the next topology or with the group's current one."""
        member, group = self.members[who], self.play.group
        epoch = group.topology_epoch if group is not None else -1
        if leaves:
            member.leave(self.play)
        member.forget(anew=True)
        member.topology = f"{topology} topology-epoch={epoch + 1}"
        if settles:
            self.all_act(rounds=2, ms=500)

    @rule(who=MEMBER)
    def follows(self, who: int) -> None:
        """Bounce a member with the newest topology of any member."""
        newest = max((member.topology for member in self.members), key=lambda text: text.rpartition("=")[2])
        self.process_restarts(who, leaves=True, moves=False)
        self.members[who].topology = newest

    @rule(who=MEMBER, lost=ODDS, slow=ODDS, reports_owned=st.booleans())
    def act(self, who: int, lost: bool, slow: bool, reports_owned: bool) -> None:
        """A member that comes back with a former topology is refused."""
        self.members[who].beat(self.play, lost=lost, slow=slow, reports_owned=reports_owned)

    @invariant()
    def assigned_subtopologies_are_known(self) -> None:
        """A client that gets a task of a subtopology that it does not have fails, and its group stalls."""
        for member in self.members:
            known = {part.partition(":")[0] for part in member.topology.split()[0].split("|")}
            assigned_names = {name for _, name, _ in member.assigned}
            assert assigned_names <= known, (
                f"{member.name} has {member.topology} and gets {sorted(member.assigned)}"
            )


TestUpgrades = Upgrades.TestCase
TestUpgrades.settings = settings(max_examples=EXAMPLES or depth.examples(30), **FEW)  # type: ignore[arg-type]
