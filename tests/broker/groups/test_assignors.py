"""Custom assignors: loaded by entry point or module path, and their results validated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from konvene.broker.groups.assignors import load_assignor, load_assignors
from konvene.codec.uuid import Uuid
from konvene.configs.errors import InvalidValue
from konvene.groups.assignors import (
    ASSIGNORS,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    TopicSpec,
)

TOPIC = Uuid(b"sixteen bytes it")
SPEC = GroupSpec.of(
    {name: MemberSpec(frozenset([TOPIC])) for name in ("ann", "bob")} | {"cid": MemberSpec(frozenset())},
    {TOPIC: TopicSpec(2)},
)
MODULE = """
from konvene.codec.uuid import Uuid
from konvene.groups.assignors import Assignor

def all_to_first(spec):
    first = min(spec.members)
    return {first: {topic: list(range(of.partitions))[::-1] for topic, of in spec.topics.items()}}

class Family:
    row = Assignor("mine", all_to_first)

built_in = Assignor("range", all_to_first)
number = 4
topic = Uuid(b"sixteen bytes it")

def fails(spec):
    raise KeyError("ann")

answers = {
    "stranger": {"dan": {}},
    "reader": {"cid": {topic: (0,)}},
    "partition": {"ann": {topic: (0, 2)}},
    "twice": {"ann": {topic: (0, 1)}, "bob": {topic: (1,)}},
    "kind": [1],
}
stranger, reader, partition, twice, kind = (lambda spec, of=of: of for of in answers.values())
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with a module of assignors."""
    (tmp_path / "own_assignors.py").write_text(MODULE)
    (tmp_path / "breaks_assignors.py").write_text("import nowhere")
    info = tmp_path / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[konvene.assignors]\nown = own_assignors:all_to_first\nbroken = own_assignors:gone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_assignors", None)


def test_built_in_assignors_are_loaded_by_name() -> None:
    assert list(load_assignors(["range", "uniform"]).values()) == [ASSIGNORS["range"], ASSIGNORS["uniform"]]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("own", "own"),
        ("own_assignors:all_to_first", "own_assignors:all_to_first"),
        ("own_assignors:Family.row", "mine"),
    ],
)
def test_custom_assignors_have_their_name_and_return_tuples(text: str, name: str) -> None:
    assignor = load_assignor(text)
    assert assignor.name == name
    assert assignor.assign(SPEC) == {"ann": {TOPIC: (0, 1)}, "bob": {}, "cid": {}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "nobodys",
            "no such assignor; there are uniform, range, rack-aware, broken, own, and functions as module:",
        ),
        ("broken", "own_assignors:gone cannot be loaded: AttributeError: "),
        (
            "nowhere:assign",
            "module nowhere cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("breaks_assignors:assign", "module breaks_assignors cannot be imported: ModuleNotFoundError: "),
        ("own_assignors:Family.gone", "module own_assignors has no Family.gone."),
        ("own_assignors:", "module own_assignors has no ."),
        ("own_assignors:number", "it is a int, which cannot be called."),
        ("own_assignors:built_in", "range is built in."),
    ],
)
def test_an_assignor_that_cannot_be_loaded_is_an_invalid_config(text: str, why: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        load_assignor(text)
    message = str(raised.value)
    assert message.startswith(f"Invalid value {text} for configuration group.consumer.assignors: {why}")


def test_two_assignors_of_one_name_are_an_invalid_config() -> None:
    with pytest.raises(InvalidValue, match="another assignor has the name uniform"):
        load_assignors(["uniform", "uniform"])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("fails", "Assignor own_assignors:fails: KeyError: 'ann'"),
        ("stranger", "An assignment for dan, which is not a member."),
        ("reader", f"cid is given topic {TOPIC}, to which it does not subscribe."),
        ("partition", f"ann is given partition 2 of topic {TOPIC}, which has 2."),
        ("twice", f"Partition 1 of topic {TOPIC} is given twice."),
        ("kind", "Assignor own_assignors:kind: AttributeError: 'list' object has no attribute 'keys'"),
    ],
)
def test_impossible_answer_is_a_failure_of_the_assignor(function: str, why: str) -> None:
    with pytest.raises(PartitionAssignorError) as raised:
        load_assignor(f"own_assignors:{function}").assign(SPEC)
    assert str(raised.value) == why
