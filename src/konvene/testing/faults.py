"""Fault injection for one broker, by method or by a script of sentences.

A method returns a `Fault`, the handle, at once; the fault applies to later messages. `expire_session`,
`take_right`, `load_coordinator` and `restart_broker` take effect before they return (in virtual time a
restart ends later).
Faults on messages act on the connection: the broker itself is unchanged and processes every request that
reaches it.

All methods for messages take the keywords of `rules.Match`: `group`, `member`, `instance`, `client`, `topic`
and `generation` select messages; `nth`, `times`, `probability` and `seed` limit how often the fault applies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, Unpack

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.shard import GroupShard
from konvene.messages import BY_NAME
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.plurals import counted
from konvene.runtime.coordinator import RequestContext
from konvene.testing.error_response import has_error_field
from konvene.testing.fault import Fault, FaultEvent, Matchable
from konvene.testing.group import GroupMember
from konvene.testing.journal_faults import APPENDS, Append
from konvene.testing.rules import Action, After, Match, Matching, Rule, Side, Verb
from konvene.testing.script import read_script

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.testing.request_header import ProxiedRequest

T = TypeVar("T")

Direction = Literal["request", "response"]

FENCING = ("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_MEMBER_EPOCH")


class BrokerControl(Protocol):
    """The interface through which faults control the running broker."""

    def with_broker(self, function: Callable[[Broker], T]) -> T:
        """Run a function with the broker on its event loop and return the result."""

    def restart(self, *, kill: bool = False) -> None:
        """Stop the broker, or kill it if `kill`, and start it with the same data and port."""

    @property
    def running(self) -> bool:
        """Return True if the broker runs."""

    def allow(self, acl: str) -> None:
        """Create the ACLs of a line, such as `alice READ topic:orders`. Raises ValueError without ACLs."""

    def revoke(self, acl: str) -> None:
        """Delete the ACLs of a line."""


class Faults:
    """The fault injector of one broker. `log` lists each application of a fault, in order."""

    def __init__(self, control: BrokerControl) -> None:
        self.log: list[FaultEvent] = []
        self._control = control
        self._armed: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<faults: {len(self._armed)} armed, {len(self.log)} done>"

    @property
    def armed(self) -> tuple[Fault, ...]:
        """The faults that can still be applied."""
        return self._armed

    def run(self, script: str) -> list[Fault]:
        """Create faults from sentences, one per line, and return their handles in order.

        Raises `FaultScriptError` for a malformed sentence; no fault is created then."""
        return [make_fault(self) for make_fault in read_script(script)]

    def clear(self) -> None:
        """Cancel all armed faults."""
        for fault in self._armed:
            fault.cancel()

    # --- messages ---

    def lose_request(
        self, api: str | None = None, *, connection: After = "cut", **match: Unpack[Matching]
    ) -> Fault:
        """Drop a request before it reaches the broker. `connection`: what happens to the connection then, see
        `rules.After`."""
        return self._add("lose", "request", api, match, after=connection)

    def lose_response(
        self, api: str | None = None, *, connection: After = "cut", **match: Unpack[Matching]
    ) -> Fault:
        """Drop a response: the broker has processed the request, but the client gets no response."""
        return self._add("lose", "response", api, match, after=connection)

    def delay(
        self, api: str | None = None, *, ms: int, direction: Direction = "response", **match: Unpack[Matching]
    ) -> Fault:
        """Delay a message, and with it all later messages of its direction on the connection."""
        return self._add("delay", direction, api, match, ms=ms)

    def hold(
        self, api: str | None = None, *, direction: Direction = "request", **match: Unpack[Matching]
    ) -> Fault:
        """Hold a message until `release` is called on the returned handle."""
        return self._add("hold", direction, api, match)

    def duplicate(self, api: str | None = None, **match: Unpack[Matching]) -> Fault:
        """Deliver a request twice; the client receives only the first response."""
        return self._add("duplicate", "request", api, match)

    def cut(
        self,
        api: str | None = None,
        *,
        at_byte: int = 6,
        direction: Direction = "response",
        **match: Unpack[Matching],
    ) -> Fault:
        """Close the connection after `at_byte` bytes of a frame, including its 4-byte length prefix."""
        return self._add("cut", direction, api, match, at_byte=at_byte)

    def answer(self, api: str, error: str | int, **match: Unpack[Matching]) -> Fault:
        """Answer with an error (name or code) in place of the broker, which does not receive the request.

        Raises ValueError if the response of the API has no error code."""
        name = _api(api)
        if name is not None and not has_error_field(BY_NAME[name]):
            raise ValueError(f"the response to {name} has no error code")
        return self._add("answer", "request", api, match, error=_error(error))

    def fence(
        self, member: int | str, *, generation: int | None = None, error: str = "FENCED_INSTANCE_ID",
        takeover: bool = False, group: str | None = None,
    ) -> Fault:  # fmt: skip
        """Fence a classic member at its next Heartbeat; with `generation`, at the next one in that
        generation.

        The Heartbeat is answered with `error`. With `takeover`, another member joins under the instance id of
        this static member before the broker receives the Heartbeat, and the broker itself answers
        FENCED_INSTANCE_ID."""
        if error not in FENCING:
            raise ValueError(f"{error} does not fence a member; use one of {', '.join(FENCING)}")
        match: Matching = {"member": member}
        if generation is not None:
            match["generation"] = generation
        if group is not None:
            match["group"] = group
        verb: Verb = "replace" if takeover else "answer"
        return self._add(verb, "request", "Heartbeat", match, error=_error(error))

    def partition(
        self, client: str, *, direction: Literal["both", "to the broker", "from the broker"] = "both"
    ) -> list[Fault]:
        """Drop all messages between a client (`client` is its client id) and the broker, in one or both
        directions, until the returned faults are cancelled. Connections stay open."""
        faults = []
        if direction != "from the broker":
            faults.append(self.lose_request(connection="stays", client=client, times=None))
        if direction != "to the broker":
            faults.append(self.lose_response(connection="stays", client=client, times=None))
        return faults

    # --- coordinators ---

    def restart_after_append(self, group: str, api: str | None = None, *, nth: int = 1) -> Fault:
        """Restart the group's coordinator between its `nth` append from now on and the reply.

        The batch is in the log; waiting requests fail with NOT_COORDINATOR. With `api`, only appends count
        whose records are of the type that this API writes: OffsetCommit, JoinGroup, SyncGroup or
        LeaveGroup."""
        return self._add("restart", "append", _appending_api(api), {"group": group, "nth": nth})

    def fail_append(self, group: str, api: str | None = None, *, nth: int = 1) -> Fault:
        """Fail the group's `nth` append from now on: nothing is written, and waiting requests fail with
        NOT_COORDINATOR. `api` is as in `restart_after_append`."""
        return self._add("fail", "append", _appending_api(api), {"group": group, "nth": nth})

    def expire_session(self, member: int | str, *, group: str | None = None) -> Fault:
        """Expire the session of a member now; `member` is a number or name as in `rules.Match`.

        `group` may be omitted if only one group has such a member. Raises LookupError if no member matches,
        or several do."""
        name, member_id = self._control.with_broker(lambda broker: _find_member(broker, member, group))
        fault = self._immediate(f"expire the session of member {member} of group {name} now")

        def expire(broker: Broker) -> None:
            coordinator = broker.groups.of(name)
            if coordinator is None or not coordinator.fire_timer(("session", name, member_id)):
                raise LookupError(f"{member_id} of group {name} has no session timer")
            fault.record(FaultEvent(fault.sentence, detail=member_id))

        self._control.with_broker(expire)
        return fault

    def take_right(self, operation: str, resource: str, user: str) -> Fault:
        """Deny a user an operation on a resource, such as READ on `topic:orders`, until `cancel()`.

        However the user got the right, a DENY ACL overrides it; requests without the right are denied from
        now on. Raises ValueError for a broker without ACLs, and for an unknown operation or resource."""
        acl = f"deny {user} {operation} {resource}"
        kind, _, name = resource.partition(":")
        shown = name if kind.lower() == "topic" else f"{kind} {name}".strip()
        self._control.allow(acl)

        def give_back() -> None:
            if self._control.running:
                self._control.revoke(acl)

        fault = Fault(self, f"take {operation.upper()} on {shown} from {user}", undo=give_back)
        with self._lock:
            self._armed = (*self._armed, fault)
        fault.record(FaultEvent(fault.sentence))
        return fault

    def load_coordinator(self, group: str, *, ms: int = 0) -> Fault:
        """Make the group's coordinator load its log again, which takes `ms` milliseconds; it is unavailable
        until then.

        Raises LookupError if the group has no coordinator yet, because no client has looked it up."""
        fault = self._immediate(f"the coordinator of group {group} loads for {ms} ms")

        def load(broker: Broker) -> None:
            coordinator = broker.groups.of(group)
            if coordinator is None:
                raise LookupError(f"group {group} has no coordinator yet: no client has looked it up")
            fault.record(FaultEvent(fault.sentence))
            coordinator.reload(after_ms=ms)

        self._control.with_broker(load)
        return fault

    def restart_broker(self, *, kill: bool = True) -> Fault:
        """Restart the broker now, with the same data and port: kill it or, with `kill=False`, shut it down,
        and start it again.

        The broker runs again when this returns; in virtual time it starts later. The returned `Fault` is
        done: it was applied once, as `log` shows, and is never applied again."""
        fault = self._immediate("kill and restart the broker" if kill else "restart the broker")
        self._control.restart(kill=kill)
        fault.record(FaultEvent(fault.sentence))
        return fault

    # --- called by proxies and journals ---

    def for_message(self, proxied: ProxiedRequest, side: Side) -> Fault | None:
        """Return the first armed fault that applies to this request, or to its response (`side`), or None."""
        return self._matching_fault(proxied, side) if self._armed else None

    def for_append(self, append: Callable[[], Append]) -> Fault | None:
        """Return the first armed fault that applies to an append to a coordinator's log, or None.

        `append` returns a description of the append; it is called only if a fault on appends is armed."""
        if not any(fault.rule is not None and fault.action.side == "append" for fault in self._armed):
            return None
        return self._matching_fault(append(), "append")

    def _matching_fault(self, target: Matchable, side: Side) -> Fault | None:
        on_side = (fault for fault in self._armed if fault.rule is not None and fault.action.side == side)
        return next((fault for fault in on_side if fault.applies_to(target)), None)

    def replace_member(self, broker: Broker, proxied: ProxiedRequest, then: Callable[[], None]) -> None:
        """Let another member join under the instance id of the static member that sent `proxied`.

        Call `then` once its JoinGroup is answered, or at once if the sender is no static member."""
        member_id, instance_id, _ = proxied.identities[0]
        group = proxied.groups[0]
        coordinator = broker.groups.of(group)
        if coordinator is None:
            then()
            return
        assert isinstance(coordinator.core, GroupShard)
        request = _takeover_request(coordinator.core, group, member_id, instance_id)
        if request is None:
            then()
            return

        def on_response(_response: object) -> None:
            broker.loop.call_soon(then)

        context = RequestContext(
            api_version=5, client_id="konvene.usurper", client_host="/faults", fresh_ids=("usurper",)
        )
        coordinator.submit(request, context).listen(on_response)

    def append_to_log(self, event: FaultEvent) -> None:
        self.log.append(event)

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._armed = tuple(each for each in self._armed if each is not fault)

    # --- construction ---

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
        similar = [api for api in BY_NAME if api.lower() == name.replace("_", "").lower()]
        if not similar:
            raise ValueError(f"{name!r} is not a Kafka API name, such as Heartbeat or JoinGroup")
        return similar[0]
    return name


def _appending_api(api: str | None) -> str | None:
    if api is not None and api not in APPENDS:
        raise ValueError(f"{api} appends nothing to the group log; use one of {', '.join(APPENDS)}")
    return api


def _error(error: str | int) -> Errors:
    try:
        return Errors[error] if isinstance(error, str) else Errors(error)
    except (KeyError, ValueError):
        raise ValueError(f"{error!r} is not a Kafka error, such as REBALANCE_IN_PROGRESS") from None


def _find_member(broker: Broker, member: int | str, group: str | None) -> tuple[str, str]:
    """Return (group, member id) of a member, found by its position or by its member, instance or client id.

    Raises LookupError if no member matches, or several do."""
    members = []
    for coordinator in broker.groups.all():
        assert isinstance(coordinator.core, GroupShard)
        for name, group_state in coordinator.core.groups.items():
            if group not in (None, name):
                continue
            rows: list[GroupMember] = list(group_state.members.values())
            if isinstance(member, int):
                rows = rows[member - 1 : member] if member > 0 else []
            else:
                rows = [m for m in rows if member in (m.member_id, m.instance_id, m.client_id)]
            members += [(name, row.member_id) for row in rows]
    where = f"group {group}" if group is not None else "any group"
    if not members:
        raise LookupError(f"no member {member} in {where}")
    if len(members) > 1:
        raise LookupError(
            f"{counted(len(members), 'member')} in {where} match {member}; pass the group or the member id"
        )
    return members[0]


def _takeover_request(
    shard: GroupShard, group: str, member_id: str, instance_id: str | None
) -> JoinGroupRequest | None:
    """Return a JoinGroup by which another member takes over a classic member's instance id, with its
    protocols.

    Return None if there is no such member, or it is not static."""
    group_state = shard.groups.get(group)
    member = group_state.members.get(member_id) if isinstance(group_state, ClassicGroup) else None
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


__all__ = ["FENCING", "BrokerControl", "Faults"]
