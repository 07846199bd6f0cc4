"""Custom task assignors: loaded like those of partitions, and their results validated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from konvene.broker.groups.assignors import load_task_assignor, load_task_assignors, offered_task_assignors
from konvene.configs import BrokerConfig
from konvene.configs.errors import InvalidValue
from konvene.configs.group import TASK_ASSIGNORS as NAMES
from konvene.groups.assignors.tasks.contract import (
    NOTHING,
    AssignmentMemberSpec,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    TaskAssignorError,
    TopologyDescriber,
)
from konvene.groups.streams.assignors import TASK_ASSIGNORS

SPEC = GroupSpec({"ann": AssignmentMemberSpec("p"), "bob": AssignmentMemberSpec("q")})
TOPOLOGY = TopologyDescriber({"0": Subtopology(2, True)})
MODULE = """
from konvene.groups.assignors.tasks.contract import MemberAssignment, TaskAssignor

def all_to_first(spec, topology):
    every = {name: list(range(of.partitions))[::-1] for name, of in topology.subtopologies.items()}
    return {min(spec.members): MemberAssignment(every)}

def fails(spec, topology):
    raise KeyError("ann")

def twice(spec, topology):
    return dict.fromkeys(spec.members, MemberAssignment({"0": (0,)}))

def warms_up(spec, topology):
    first, *others = sorted(spec.members)
    copies = {name: MemberAssignment(warmup={"0": [1, 0]}) for name in others}
    return {first: MemberAssignment({"0": [0, 1]}), **copies}

def warms_up_what_it_runs(spec, topology):
    return {name: MemberAssignment({"0": [0]}, warmup={"0": [0]}) for name in spec.members}

mine = TaskAssignor("mine", all_to_first)
built_in = TaskAssignor("sticky", all_to_first)
number = 4
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with a module of task assignors."""
    (tmp_path / "own_task_assignors.py").write_text(MODULE)
    info = tmp_path / "own_tasks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-tasks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[konvene.task_assignors]\nown = own_task_assignors:all_to_first\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_task_assignors", None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("own", "own"),
        ("own_task_assignors:all_to_first", "own_task_assignors:all_to_first"),
        ("own_task_assignors:mine", "mine"),
    ],
)
def test_custom_task_assignors_return_sorted_tasks(text: str, name: str) -> None:
    found = load_task_assignors(["sticky", text])
    assert list(found) == ["sticky", name]
    assert found["sticky"] is TASK_ASSIGNORS["sticky"]
    assert found[name].assign(SPEC, TOPOLOGY) == {"ann": MemberAssignment({"0": (0, 1)}), "bob": NOTHING}


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["uniform"], "no such assignor; there are sticky, highly_available, own, and functions"),
        (["own_task_assignors:gone"], "module own_task_assignors has no gone"),
        (["own_task_assignors:number"], "it is a int, which cannot be called"),
        (["own_task_assignors:built_in"], "sticky is built in"),
        (["own_task_assignors:mine", "own_task_assignors:mine"], "another assignor has the name mine"),
    ],
)
def test_invalid_task_assignors_are_rejected(texts: list[str], why: str) -> None:
    with pytest.raises(InvalidValue, match=why) as raised:
        load_task_assignors(texts)
    assert "group.streams.assignors" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fails", "Assignor own_task_assignors:fails: KeyError: 'ann'"),
        ("twice", "bob is given active task 0_0, which another has as well."),
        ("warms_up_what_it_runs", "ann is given warm-up task 0_0, which its process has already."),
    ],
)
def test_invalid_results_are_assignor_failures(name: str, why: str) -> None:
    with pytest.raises(TaskAssignorError) as raised:
        load_task_assignor(f"own_task_assignors:{name}").assign(SPEC, TOPOLOGY)
    assert raised.value.message == why


def test_all_built_in_task_assignors_are_offered_by_default() -> None:
    """If the default value `sticky` is configured explicitly, only sticky is offered."""
    assert tuple(offered_task_assignors(BrokerConfig.load(None)[0])) == NAMES == tuple(TASK_ASSIGNORS)
    config, _ = BrokerConfig.load(None, [("group.streams.assignors", "sticky")])
    assert tuple(offered_task_assignors(config)) == ("sticky",)


def test_idle_warmups_are_dropped() -> None:
    """Warm-ups that caught up or report no progress; otherwise the group would never be stable."""
    behind = AssignmentMemberSpec("q", task_offsets={"0": {0: 90_000, 1: 5}}, reports_offsets=True)
    ahead = AssignmentMemberSpec("p", task_end_offsets={"0": {0: 100_000, 1: 100_000}}, reports_offsets=True)
    members = {"ann": ahead, "bob": behind, "cid": AssignmentMemberSpec("r")}
    warms_up = load_task_assignor("own_task_assignors:warms_up")
    assert warms_up.assign(GroupSpec(members), TOPOLOGY) == {
        "ann": MemberAssignment({"0": (0, 1)}),
        "bob": MemberAssignment(warmup={"0": (1,)}),
        "cid": NOTHING,
    }
