"""The invariant checks themselves, run on made-up histories: a check must be able to fail."""

from typing import Any

from .stories import gaps, read_again, shared_holds, steps_back
from .test_assignors import Act, Play, needless_moves, reassigned, shapes

P = [["t", 0]]


class Member:
    """The part of a client that a check needs: a name, an end, and events."""

    def __init__(self, name: str, *events: tuple[int, str, Any], ended_ns: int | None = None) -> None:
        self.name = name
        self.ended_ns = ended_ns
        self.events = [{"at": at, "event": kind, **event_fields(kind, what)} for at, kind, what in events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


def event_fields(kind: str, what: Any) -> dict[str, Any]:
    if kind == "records":
        return {"records": [{"topic": "t", "partition": 0, "offset": offset} for offset in what]}
    if kind == "committed":
        return {"offsets": [["t", 0, what, ""]]}
    return {"partitions": what}


ANN = Member("ann", (1, "assigned", P), (2, "records", [0, 1, 2]), (3, "committed", 3), (5, "revoked", P))


def test_a_faultless_story() -> None:
    bob = Member("bob", (6, "assigned", P), (7, "records", [3, 4]), (8, "committed", 5))
    story: Any = [ANN, bob]
    assert (gaps(story), read_again(story), shared_holds(story), steps_back(story)) == ([], [], [], [])


def test_a_gap_is_seen() -> None:
    story: Any = [Member("ann", (1, "assigned", P), (2, "records", [0, 1]), (3, "records", [3]))]
    assert gaps(story) == ["ann read ('t', 0): 1 and then 3"]


def test_reading_again_what_was_committed_is_seen() -> None:
    story: Any = [ANN, Member("bob", (6, "assigned", P), (7, "records", [2, 3]))]
    assert read_again(story) == ["bob read ('t', 0) from 2, committed: 3"]


def test_reading_again_what_was_not_committed_is_allowed() -> None:
    ann = Member("ann", (1, "assigned", P), (2, "records", [0, 1, 2]), ended_ns=5)
    story: Any = [ann, Member("bob", (6, "assigned", P), (7, "records", [0, 1, 2, 3]))]
    assert (read_again(story), shared_holds(story)) == ([], [])


def test_two_owners_are_seen() -> None:
    story: Any = [ANN, Member("bob", (4, "assigned", P))]
    assert shared_holds(story) == ["('t', 0): bob was assigned it while ann held it"]


def test_a_commit_that_goes_back_is_seen() -> None:
    story: Any = [ANN, Member("bob", (6, "assigned", P), (8, "committed", 2))]
    assert steps_back(story) == ["('t', 0): ann committed 3, then bob 2"]


def play(assignor: str, before: list[int], after: list[int], *events: tuple[int, str, Any]) -> Play:
    """One act, from 10 to 20, of a group in which ann has neighbours."""
    held, holds = ({("t", partition) for partition in numbers} for numbers in (before, after))
    act = Act("bob comes", 10, 20, {"ann": held}, {"ann": holds, "bob": set()}, {})
    members: Any = [Member("ann", *events)]
    return Play(assignor, "t", members, [act])


def test_needless_revocation_is_seen() -> None:
    taken = play("cooperative-sticky", [0, 1], [0], (15, "revoked", [["t", 0], ["t", 1]]))
    assert reassigned(taken) == ["bob comes: ann was told revoked of ('t', 0)"]
    assert reassigned(play("cooperative-sticky", [0, 1], [0], (15, "revoked", [["t", 1]]))) == []


def test_a_needless_move_is_seen() -> None:
    [move] = needless_moves(play("sticky", [0, 1], [1, 2]))
    assert move == "bob comes: ann had [('t', 0), ('t', 1)] and has [('t', 1), ('t', 2)]"
    assert needless_moves(play("sticky", [0, 1], [1])) == needless_moves(play("sticky", [0], [0, 1])) == []


def test_an_assignment_of_another_kind_is_seen() -> None:
    evenly = Act("bob comes", 10, 20, {}, {"ann": {("t", 0), ("t", 2)}, "bob": {("t", 1), ("t", 3)}}, {})
    assert shapes(Play("roundrobin", "t", [], [evenly])) == []
    assert shapes(Play("range", "t", [], [evenly])) == [
        "bob comes: ann has [0, 2]",
        "bob comes: bob has [1, 3]",
    ]
