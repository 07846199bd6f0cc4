"""The faults of one broker: asked for by method or by sentence, found for each message, written down.

A method returns at once with a `Fault`, the handle; what it asks for happens to messages still to come. Those
about the coordinator itself (`expire_session`, `load_coordinator`, `restart_broker`) are done when they
return. What is lost, delayed or answered is so for the client alone: the broker is the real one.

All methods that are about messages take the same keywords (`rules.Match`): `group`, `member`, `instance`,
`client`, `topic`, `generation` say whose; `nth`, `times`, `probability` and `seed` say how often.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, Unpack

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.runtime.coordinator import RequestContext
from konvene.testing.fault import Fault, Happening, Matched
from konvene.testing.journal_faults import APPENDS, Append
from konvene.testing.refusal import can_be_refused
from konvene.testing.rules import Action, After, Match, Matching, Rule, Side, Verb
from konvene.testing.script import read_script

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.testing.request_header import ProxiedRequest

T = TypeVar("T")

Way = Literal["request", "response"]

FENCING = ("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_MEMBER_EPOCH")


class Place(Protocol):
    """The running broker, as faults need it."""

    def inside(self, act: Callable[[Broker], T]) -> T:
        """Run a function on the broker's loop and wait for it."""

    def restart(self, *, kill: bool = False) -> None: ...


class Faults:
    """Injects faults. `log` lists their applications, in order."""

    def __init__(self, place: Place) -> None:
        self.log: list[Happening] = []
        self._place = place
        self._armed: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<faults: {len(self._armed)} armed, {len(self.log)} done>"

    @property
    def armed(self) -> tuple[Fault, ...]:
        """Return the faults that may still be applied."""
        return self._armed

    def run(self, script: str) -> list[Fault]:
        """Create faults from sentences, one per line, and return their handles in order. Raises
        `FaultScriptError`."""
        return [do(self) for do in read_script(script)]

    def clear(self) -> None:
        """Cancel all armed faults."""
        for fault in self._armed:
            fault.cancel()

    # --- messages ---

    def lose_request(
        self, api: str | None = None, *, connection: After = "cut", **match: Unpack[Matching]
    ) -> Fault:
        """Drop a request before it reaches the broker."""
        return self._add("lose", "request", api, match, after=connection)

    def lose_response(
        self, api: str | None = None, *, connection: After = "cut", **match: Unpack[Matching]
    ) -> Fault:
        """Drop a response: the broker carried out the request, the client does not know."""
        return self._add("lose", "response", api, match, after=connection)

    def delay(
        self, api: str | None = None, *, ms: int, way: Way = "response", **match: Unpack[Matching]
    ) -> Fault:
        """Delay a message, and all that follow on its connection."""
        return self._add("delay", way, api, match, ms=ms)

    def hold(self, api: str | None = None, *, way: Way = "request", **match: Unpack[Matching]) -> Fault:
        """Hold a message until `release` of the handle."""
        return self._add("hold", way, api, match)

    def duplicate(self, api: str | None = None, **match: Unpack[Matching]) -> Fault:
        """Deliver a request twice; the client receives the first response."""
        return self._add("duplicate", "request", api, match)

    def cut(
        self, api: str | None = None, *, at_byte: int = 6, way: Way = "response", **match: Unpack[Matching]
    ) -> Fault:
        """Close the connection within a frame, after so many bytes of it (its length takes four)."""
        return self._add("cut", way, api, match, at_byte=at_byte)

    def answer(self, api: str, error: str | int, **match: Unpack[Matching]) -> Fault:
        """Answer with an error, by Kafka's name or code; the broker does not receive the request."""
        known = _api(api)
        if known is not None and not can_be_refused(BY_NAME[known]):
            raise ValueError(f"a response to {known} has no place for an error")
        return self._add("answer", "request", api, match, error=_error(error))

    def fence(
        self, member: int | str, *, generation: int | None = None, error: str = "FENCED_INSTANCE_ID",
        really: bool = False, group: str | None = None,
    ) -> Fault:  # fmt: skip
        """Fence a member at its next Heartbeat, in this generation if one is given.

        The response has `error`. With `really`, another member joins under its instance id first, so that the
        broker itself answers FENCED_INSTANCE_ID; this needs a static member."""
        if error not in FENCING:
            raise ValueError(f"{error} does not fence a member; one of {', '.join(FENCING)} does")
        match: Matching = {"member": member}
        if generation is not None:
            match["generation"] = generation
        if group is not None:
            match["group"] = group
        verb: Verb = "replace" if really else "answer"
        return self._add(verb, "request", "Heartbeat", match, error=_error(error))

    def partition(
        self, client: str, *, way: Literal["both", "to the broker", "from the broker"] = "both"
    ) -> list[Fault]:
        """Cut a client off, in one or both directions, until `cancel`."""
        found = []
        if way != "from the broker":
            found.append(self.lose_request(connection="stays", client=client, times=None))
        if way != "to the broker":
            found.append(self.lose_response(connection="stays", client=client, times=None))
        return found

    # --- coordinators ---

    def restart_after_append(self, group: str, api: str | None = None, *, nth: int = 1) -> Fault:
        """Restart the group's coordinator between the next append and its reply.

        The batch is in the log; waiting requests fail with NOT_COORDINATOR. `api` selects the request:
        OffsetCommit, JoinGroup, SyncGroup or LeaveGroup."""
        return self._add("restart", "append", _appending(api), {"group": group, "nth": nth})

    def fail_append(self, group: str, api: str | None = None, *, nth: int = 1) -> Fault:
        """Let the next append of the group's coordinator fail: nothing is written and nothing changes."""
        return self._add("fail", "append", _appending(api), {"group": group, "nth": nth})

    def expire_session(self, member: int | str, *, group: str | None = None) -> Fault:
        """Expire a member's session now. A number is its position, see `rules.Match`; `group` may be omitted
        if only one group has such a member. Raises LookupError if there is no such member."""
        name, member_id = self._place.inside(lambda broker: _find_member(broker, member, group))
        fault = self._immediate(f"expire the session of member {member} of group {name} now")

        def expire(broker: Broker) -> None:
            coordinator = broker.groups.of(name)
            if coordinator is None or not coordinator.fire_timer(("session", name, member_id)):
                raise LookupError(f"{member_id} of group {name} has no session that could expire")
            fault.record(Happening(fault.sentence, detail=member_id))

        self._place.inside(expire)
        return fault

    def load_coordinator(self, group: str, *, ms: int = 0) -> Fault:
        """Let the group's coordinator load its log again, for this long."""
        fault = self._immediate(f"the coordinator of group {group} loads for {ms} ms")

        def load(broker: Broker) -> None:
            coordinator = broker.groups.of(group)
            if coordinator is None:
                raise LookupError(f"group {group} has no coordinator yet: no client has looked it up")
            fault.record(Happening(fault.sentence))
            coordinator.reload(after_ms=ms)

        self._place.inside(load)
        return fault

    def restart_broker(self, *, kill: bool = True) -> Fault:
        """Restart the broker with its data and port; killed, it closes nothing."""
        fault = self._immediate("kill and restart the broker" if kill else "restart the broker")
        self._place.restart(kill=kill)
        fault.record(Happening(fault.sentence))
        return fault

    # --- what gates and taps ask ---

    def for_message(self, proxied: ProxiedRequest, side: Side) -> Fault | None:
        """Return the fault that applies to this message."""
        return self._first(proxied, side) if self._armed else None

    def for_append(self, append: Callable[[], Append]) -> Fault | None:
        if not any(fault.action.side == "append" for fault in self._armed):
            return None
        return self._first(append(), "append")

    def _first(self, matched: Matched, side: Side) -> Fault | None:
        return next((f for f in self._armed if f.action.side == side and f.applies_to(matched)), None)

    def replace_member(self, broker: Broker, proxied: ProxiedRequest, then: Callable[[], None]) -> None:
        """Join under the instance id of this request; `then` is called when the broker has decided."""
        member_id, instance_id, _ = proxied.identities[0]
        group = proxied.groups[0]
        coordinator = broker.groups.of(group)
        if coordinator is None:
            then()
            return
        request = _joining(coordinator.core, group, member_id, instance_id)
        if request is None:
            then()
            return

        def decided(_answer: object) -> None:
            broker.loop.call_soon(then)

        context = RequestContext(
            api_version=5, client_id="konvene.usurper", client_host="/faults", fresh_ids=("usurper",)
        )
        coordinator.submit(request, context).listen(decided)

    def append_to_log(self, happening: Happening) -> None:
        self.log.append(happening)

    def forget(self, fault: Fault) -> None:
        with self._lock:
            self._armed = tuple(each for each in self._armed if each is not fault)

    # --- making them ---

    def _add(
        self, verb: Verb, side: Side, api: str | None, match: Matching, *, after: After = "cut", ms: int = 0,
        at_byte: int = 0, error: Errors = Errors.NONE,
    ) -> Fault:  # fmt: skip
        rule = Rule(Match(api=_api(api), **match), Action(verb, side, after, ms, at_byte, error))
        fault = Fault(self, str(rule), rule)
        with self._lock:
            self._armed = (*self._armed, fault)
        return fault

    def _immediate(self, sentence: str) -> Fault:
        return Fault(self, sentence)


def _api(name: str | None) -> str | None:
    if name is not None and name not in BY_NAME:
        alike = [known for known in BY_NAME if known.lower() == name.replace("_", "").lower()]
        if not alike:
            raise ValueError(f"{name!r} is not one of Kafka's APIs, such as Heartbeat or JoinGroup")
        return alike[0]
    return name


def _appending(api: str | None) -> str | None:
    if api is not None and api not in APPENDS:
        raise ValueError(f"{api} writes nothing to the group log; {', '.join(APPENDS)} do")
    return api


def _error(error: str | int) -> Errors:
    try:
        return Errors[error] if isinstance(error, str) else Errors(error)
    except (KeyError, ValueError):
        raise ValueError(f"{error!r} is not one of Kafka's errors, such as REBALANCE_IN_PROGRESS") from None


def _find_member(broker: Broker, member: int | str, group: str | None) -> tuple[str, str]:
    """Return group and member id of a member, by position or by member, instance or client id."""
    found = []
    for coordinator in broker.groups.all():
        for name, known in coordinator.core.groups.items():  # type: ignore[attr-defined]
            if group not in (None, name):
                continue
            rows = list(known.members.values())
            if isinstance(member, int):
                rows = rows[member - 1 : member] if member > 0 else []
            else:
                rows = [m for m in rows if member in (m.member_id, m.instance_id, m.client_id)]
            found += [(name, row.member_id) for row in rows]
    where = f"group {group}" if group is not None else "any group"
    if not found:
        raise LookupError(f"there is no member {member} in {where}")
    if len(found) > 1:
        raise LookupError(
            f"{len(found)} members in {where} are meant by {member}: say which group, or its id"
        )
    return found[0]


def _joining(core: object, group: str, member_id: str, instance_id: str | None) -> Struct | None:
    """Return a JoinGroup that takes a static member's place with the same subscription."""
    from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

    known = core.groups.get(group)  # type: ignore[attr-defined]
    member = known.members.get(member_id) if known is not None else None
    instance = instance_id or (member.instance_id if member is not None else None)
    if member is None or instance is None:
        return None
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        group_instance_id=instance,
        protocol_type=member.protocol_type,
        protocols=tuple(JoinGroupRequestProtocol(name=n, metadata=m) for n, m in member.protocols),
    )


__all__ = ["FENCING", "Faults", "Place"]
