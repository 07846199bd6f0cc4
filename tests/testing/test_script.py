"""Fault scripts: the fault that each form creates, and the errors of malformed sentences."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.testing import FaultScriptError
from konvene.testing.faults import Faults
from konvene.testing.script import FORMS, read_script, read_sentence


class NoBroker:
    """A `BrokerControl` without a broker, which records its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def with_broker(self, function: Any) -> Any:
        raise LookupError("no broker")

    def restart(self, *, kill: bool = False) -> None:
        self.calls.append(("restart", kill))

    running = True

    def allow(self, acl: str) -> None:
        self.calls.append(("allow", acl))

    def revoke(self, acl: str) -> None:
        self.calls.append(("revoke", acl))


TRANSCRIPT = """
lose the next heartbeat response of instance a
    lose the next Heartbeat response of instance a
Lose every JoinGroup request of member 3 of group g.
    lose every JoinGroup request of member 3 of group g
lose the 2nd offset commit response, the connection stays
    lose the 2nd OffsetCommit response, the connection stays
lose the next 3 sync_group requests and the connection is silent
    lose the next 3 SyncGroup requests, then silence
delay the next SyncGroup response of client bob by 0.2 s
    delay the next SyncGroup response of client bob by 200 ms
delay next fetch request of topic orders by 20ms
    delay the next Fetch request of topic orders by 20 ms
hold the next join group request of member m-1
    hold the next JoinGroup request of member m-1
duplicate the next Produce request
    duplicate the next Produce request
cut the connection after 9 bytes of the next Fetch response
    cut the connection after 9 bytes of the next Fetch response
answer every heartbeat request in generation 7 with rebalance_in_progress
    answer every Heartbeat request in generation 7 with REBALANCE_IN_PROGRESS
answer the next Heartbeat request with probability 0.5 and seed 3 with 25
    answer the next Heartbeat request with probability 0.5 with UNKNOWN_MEMBER_ID
fence member 3 at epoch 7
    answer the next Heartbeat request of member 3 in generation 7 with FENCED_INSTANCE_ID
fence instance a of group g with UNKNOWN_MEMBER_ID
    answer the next Heartbeat request of member a of group g with UNKNOWN_MEMBER_ID
fence instance a by joining in its place
    replace the member that sends the next Heartbeat request of member a
the coordinator of group g restarts between append and reply
    restart the coordinator after the next message append of group g
the coordinator of group g restarts between append and reply of the next OffsetCommit
    restart the coordinator after the next OffsetCommit append of group g
fail the next append of group g
    fail the next message append of group g
lose everything of client ann to the broker
    lose every message request of client ann, the connection stays
"""
"""Pairs of lines: a sentence, and the canonical sentence of the fault that it creates."""

LINES = TRANSCRIPT.strip().splitlines()
SENTENCES = list(zip(LINES[::2], map(str.strip, LINES[1::2]), strict=True))


@pytest.mark.parametrize(("sentence", "canonical"), SENTENCES)
def test_sentence_creates_a_fault(sentence: str, canonical: str) -> None:
    """A sentence arms one fault, which has the canonical sentence."""
    faults = Faults(NoBroker())
    (fault,) = faults.run(sentence)
    assert fault.sentence == canonical
    assert faults.armed == (fault,)


def test_immediate_faults_need_the_broker() -> None:
    """Session expiry, loading and restarts act on the broker when the script is run."""
    control = NoBroker()
    faults = Faults(control)
    for sentence in ("expire the session of member 2 of group g now", "expire session of instance a"):
        with pytest.raises(LookupError):
            faults.run(sentence)
    with pytest.raises(LookupError):
        faults.run("the coordinator of group g loads for 2 s")
    faults.run("restart the broker\nkill and restart the broker")
    assert control.calls == [("restart", False), ("restart", True)]


@pytest.mark.parametrize(
    ("sentence", "acl", "canonical"),
    [
        (
            "take READ on orders from alice",
            "deny alice READ topic:orders",
            "take READ on orders from alice",
        ),
        ("take write on topic or* from bob.", "deny bob WRITE topic:or*", "take WRITE on or* from bob"),
        ("take READ on group g from alice", "deny alice READ group:g", "take READ on group g from alice"),
        ("take CREATE on cluster from *", "deny * CREATE cluster", "take CREATE on cluster from *"),
    ],
)
def test_a_right_is_taken_until_the_fault_is_cancelled(sentence: str, acl: str, canonical: str) -> None:
    control = NoBroker()
    faults = Faults(control)
    (fault,) = faults.run(sentence)
    assert fault.sentence == canonical
    assert [str(event) for event in faults.log] == [canonical]
    assert control.calls == [("allow", acl)]
    faults.clear()
    fault.cancel()
    assert control.calls[1:] == [("revoke", acl)]
    assert faults.armed == ()


def test_every_form_can_be_parsed() -> None:
    """Each form of the grammar parses once its placeholders are filled in and its alternatives chosen."""
    fill = {
        "WHICH": "next", "API": "OffsetCommit", "WHOSE": "of group g", "NUMBER-OR-NAME": "3", "NAME": "x",
        "NUMBER": "4", "TIME": "2 s", "ERROR": "UNKNOWN_MEMBER_ID",
        "OPERATION": "READ", "RESOURCE": "group g", "USER": "alice",
    }  # fmt: skip
    for form in FORMS:
        text = form.replace("[", "").replace("]", "").replace("stays|is silent", "is cut")
        text = text.replace("is cut|", "").replace("request|response", "request").replace("to|from", "from")
        text = text.replace("member NUMBER-OR-NAME|instance NAME|client NAME", "member NUMBER-OR-NAME")
        for placeholder, value in fill.items():
            text = text.replace(placeholder, value)
        assert read_sentence(text) is not None


def test_script_has_one_sentence_per_line_and_comments() -> None:
    """A malformed sentence raises an error with its line number, and no fault is created."""
    faults = Faults(NoBroker())
    script = """
        # the first member is unlucky
        lose the next heartbeat response of member 1
        delay every fetch response by 10 ms
    """
    assert [fault.sentence for fault in faults.run(script)] == [
        "lose the next Heartbeat response of member 1",
        "delay every Fetch response by 10 ms",
    ]
    faults.clear()
    with pytest.raises(FaultScriptError, match="line 6: 'drop it'"):
        faults.run(script + "\n" + "drop it")
    assert faults.armed == ()


WRONG = [
    ("take FLY on orders from alice", "FLY is not an operation"),
    ("take READ on orders", "expected 'from', found the end"),
    ("drop the heartbeat", "expected one of answer, coordinator, cut the connection after, delay,"),
    ("lose the next hartbeat response", r"'hartbeat' is not a Kafka API \(Heartbeat\?\)"),
    ("lose the heartbeat response", "expected 'next', 'every' or a number such as '2nd', found 'heartbeat'"),
    ("lose the next heartbeat", "expected 'request' or 'response', found the end"),
    (
        "lose the next heartbeat response of",
        "expected the end, or a qualifier such as 'of group g', found 'of'",
    ),
    ("lose the next heartbeat response of instance", "expected the name of the instance, found the end"),
    ("lose the next heartbeat response, connection dies", "expected 'connection stays', "),
    ("delay the next fetch response by soon", "expected a time such as '200 ms', found 'soon'"),
    ("delay the next fetch response by 2 days", "'days' is not a unit of time; use ms, s or min"),
    ("answer the next heartbeat request with FENCED_INSTANCE", r"not a Kafka error \(FENCED_\w+\?\)"),
    ("fence bob", "expected 'member', 'instance' or 'client', found 'bob'"),
    ("fence member 3 with NOT_COORDINATOR", "NOT_COORDINATOR does not fence a member"),
    ("fail the next append of group g of the next Fetch", "Fetch appends nothing"),
    ("the coordinator of group g explodes", "expected 'restarts between append and reply' or 'loads for'"),
]


@pytest.mark.parametrize(("sentence", "message"), WRONG)
def test_malformed_sentence_raises_an_error(sentence: str, message: str) -> None:
    """The error has the position, what was expected there, and the closest known name."""
    with pytest.raises(FaultScriptError, match=message):
        read_script(sentence)
