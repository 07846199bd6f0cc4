"""The rights of principals over time, as the wire shows them: the oracle of runs with an authorizer.

It knows nothing of the broker's authorizer, and does not share its code. It follows the administrator's
CreateAcls and DeleteAcls. From the request until the metadata log has the change durably, an ACL may or may
not apply; if the broker dies meanwhile, until the ACL is changed again. So each ACL is present, absent or
unknown at each moment. The oracle answers two questions about an interval: may the right have existed at some
moment of it, and did it exist throughout?

A moment is the number of an observed event, because many events have the same time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from konvene.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from konvene.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from konvene.security.acls import Acl

__all__ = ["CLUSTER", "CREATE", "DESCRIBE", "GROUP", "READ", "TOPIC", "WRITE", "AclEntry", "Right", "Rights"]

TOPIC, GROUP, CLUSTER = 2, 3, 4
"""Resource types of Kafka's protocol."""
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
"""Operations of Kafka's protocol."""
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER_NAME = "kafka-cluster"


class AclEntry(NamedTuple):
    """An ACL of the run; its host is always `*`."""

    resource_type: int
    name: str
    pattern_type: int
    user: str
    """Name of the user; `*` for all."""
    operation: int
    permission: int = ALLOW

    def applies_to(self, right: Right) -> bool:
        """Return True if the entry matters to the right."""
        if self.resource_type != right.resource_type or self.user not in ("*", right.user):
            return False
        if self.pattern_type == PREFIXED:
            if not right.name.startswith(self.name):
                return False
        elif self.name not in ("*", right.name):
            return False
        if self.operation in (ALL, right.operation):
            return True
        implies = self.operation in (READ, WRITE, DELETE, ALTER)
        return self.permission == ALLOW and right.operation == DESCRIBE and implies

    def creation(self) -> AclCreation:
        """Return the entry for CreateAcls."""
        return AclCreation(
            resource_type=self.resource_type, resource_name=self.name,
            resource_pattern_type=self.pattern_type, principal=f"User:{self.user}", host="*",
            operation=self.operation, permission_type=self.permission,
        )  # fmt: skip

    def deletion(self) -> DeleteAclsFilter:
        """Return the filter of DeleteAcls that selects this entry only."""
        return DeleteAclsFilter(
            resource_type_filter=self.resource_type, resource_name_filter=self.name,
            pattern_type_filter=self.pattern_type, principal_filter=f"User:{self.user}", host_filter="*",
            operation=self.operation, permission_type=self.permission,
        )  # fmt: skip


class Right(NamedTuple):
    """What a request needs: `user` may perform the operation on the resource."""

    user: str
    operation: int
    resource_type: int
    name: str


class _Entry:
    """An ACL's states: `states[i]` holds from moment `since[i]`; None is unknown."""

    __slots__ = ("change", "since", "states")

    def __init__(self) -> None:
        self.since: list[int] = [0]
        self.states: list[bool | None] = [False]
        self.change = 0
        """The moment at which the last request arrived that changes the entry."""

    def set(self, moment: int, state: bool | None) -> None:
        self.since.append(moment)
        self.states.append(state)

    def at(self, moment: int) -> bool | None:
        return self.states[bisect_right(self.since, moment) - 1]


class Rights:
    """The ACLs of a run at each moment."""

    def __init__(self) -> None:
        self.now = 0
        """The last moment."""
        self._times: list[float] = [0.0]
        self._entries: dict[AclEntry, _Entry] = {}

    def __repr__(self) -> str:
        present = sum(entry.states[-1] is True for entry in self._entries.values())
        unknown = sum(entry.states[-1] is None for entry in self._entries.values())
        return f"<rights: {present} ACLs, {unknown} unknown>"

    def tick(self, time_s: float) -> int:
        """Begin the next moment, and return it."""
        self.now += 1
        self._times.append(time_s)
        return self.now

    def moment_of(self, time_s: float) -> int:
        """Return the first moment at or after a time, or the last one."""
        return min(bisect_left(self._times, time_s), self.now)

    # --- changes ---

    def changing(self, request: object, moment: int) -> None:
        """A request that changes ACLs has arrived at the broker."""
        for entry, _ in _changes(request):
            states = self._entries.setdefault(entry, _Entry())
            states.change = moment
            states.set(moment, None)

    def changed(self, request: object, response: object, requested: int, moment: int) -> None:
        """The broker has answered such a request, which arrived at the moment `requested`."""
        for (entry, is_present), error in zip(_changes(request), _errors(response), strict=False):
            states = self._entries[entry]
            if not error and states.change == requested:
                states.set(moment, is_present)

    def applied(self, created: Iterable[Acl], deleted: Iterable[Acl], moment: int) -> None:
        """The metadata log has these changes durably: from now on they apply."""
        for acls, is_present in ((deleted, False), (created, True)):
            for acl in acls:
                user = acl.principal.removeprefix("User:")
                entry = AclEntry(
                    int(acl.resource_type), acl.resource_name, int(acl.pattern_type), user,
                    int(acl.operation), int(acl.permission_type),
                )  # fmt: skip
                self._entries.setdefault(entry, _Entry()).set(moment, is_present)

    # --- questions ---

    def may_exist(self, right: Right, first: int, last: int) -> bool:
        """Return True if the right may have existed at some moment of an interval."""
        return any(may for may, _ in self._values(right, first, last))

    def exists(self, right: Right, first: int, last: int) -> bool:
        """Return True if the right existed throughout an interval."""
        return all(must for _, must in self._values(right, first, last))

    def _values(self, right: Right, first: int, last: int) -> Iterator[tuple[bool, bool]]:
        """Yield whether the right may exist and whether it does, for each state of its ACLs."""
        entries = [(acl, states) for acl, states in self._entries.items() if acl.applies_to(right)]
        moments = {first}
        for _, states in entries:
            start, stop = bisect_right(states.since, first), bisect_right(states.since, last)
            moments.update(states.since[start:stop])
        for moment in sorted(moments):
            allowing = [states.at(moment) for acl, states in entries if acl.permission == ALLOW]
            denying = [states.at(moment) for acl, states in entries if acl.permission == DENY]
            yield (
                any(state is not False for state in allowing) and not any(state is True for state in denying),
                any(state is True for state in allowing) and all(state is False for state in denying),
            )


def _changes(request: object) -> Iterator[tuple[AclEntry, bool]]:
    """Yield the entries that a request changes, and whether they are present afterwards."""
    if isinstance(request, CreateAclsRequest):
        for c in request.creations:
            user = c.principal.removeprefix("User:")
            yield (
                AclEntry(
                    c.resource_type, c.resource_name, c.resource_pattern_type, user, c.operation,
                    c.permission_type,
                ),
                True,
            )  # fmt: skip
    elif isinstance(request, DeleteAclsRequest):
        for f in request.filters:
            user = (f.principal_filter or "").removeprefix("User:")
            yield (
                AclEntry(
                    f.resource_type_filter, f.resource_name_filter or "", f.pattern_type_filter, user,
                    f.operation, f.permission_type,
                ),
                False,
            )  # fmt: skip


def _errors(response: object) -> Iterable[int]:
    if isinstance(response, CreateAclsResponse):
        return [result.error_code for result in response.results]
    assert isinstance(response, DeleteAclsResponse), f"{response!r} answers a change of ACLs"
    return [result.error_code for result in response.filter_results]
