"""The oracle of rights: what ACLs permit by Kafka's rules, and what is known about an interval."""

from __future__ import annotations

import pytest

from konvene.errors import Errors
from konvene.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from konvene.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.resources import Operation, ResourceType
from konvene.sim.end_to_end.rights import (
    ALL,
    CREATE,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    AclEntry,
    Right,
    Rights,
)

READS_ORDERS = Right("alice", READ, TOPIC, "orders")
ALLOWED = AclEntry(TOPIC, "orders", LITERAL, "alice", READ)
DENIED = AclEntry(TOPIC, "ord", PREFIXED, "*", ALL, DENY)


def change(rights: Rights, *, add: tuple[AclEntry, ...] = (), remove: tuple[AclEntry, ...] = ()) -> int:
    """Create or delete ACLs; return the moment of the request. The response is two moments later."""
    request: object = CreateAclsRequest(creations=tuple(acl.creation() for acl in add))
    response: object = CreateAclsResponse(results=tuple(AclCreationResult() for _ in add))
    if remove:
        request = DeleteAclsRequest(filters=tuple(acl.deletion() for acl in remove))
        response = DeleteAclsResponse(filter_results=tuple(DeleteAclsFilterResult() for _ in remove))
    requested = rights.tick(0.0)
    rights.changing(request, requested)
    rights.tick(0.0)
    rights.changed(request, response, requested, rights.tick(0.0))
    return requested


def known(rights: Rights, right: Right, first: int, last: int) -> tuple[bool, bool]:
    return rights.may_exist(right, first, last), rights.exists(right, first, last)


@pytest.mark.parametrize(
    ("acl", "right", "is_permitted"),
    [
        (ALLOWED, READS_ORDERS, True),
        (ALLOWED, READS_ORDERS._replace(operation=DESCRIBE), True),
        (ALLOWED, READS_ORDERS._replace(operation=CREATE), False),
        (ALLOWED, READS_ORDERS._replace(user="bob"), False),
        (ALLOWED, READS_ORDERS._replace(resource_type=GROUP), False),
        (ALLOWED, READS_ORDERS._replace(name="orders-2"), False),
        (ALLOWED._replace(name="ord", pattern_type=PREFIXED), READS_ORDERS, True),
        (ALLOWED._replace(name="*"), READS_ORDERS, True),
        (ALLOWED._replace(user="*", operation=ALL), READS_ORDERS, True),
        (ALLOWED._replace(operation=DESCRIBE), READS_ORDERS, False),
    ],
)
def test_acl_permits_by_kafkas_rules(acl: AclEntry, right: Right, is_permitted: bool) -> None:
    rights = Rights()
    change(rights, add=(acl,))
    assert known(rights, right, rights.now, rights.now) == (is_permitted, is_permitted)


def test_denial_wins_and_implies_no_other_operation() -> None:
    rights = Rights()
    change(rights, add=(ALLOWED, DENIED._replace(operation=READ)))
    assert known(rights, READS_ORDERS, rights.now, rights.now) == (False, False)
    describes = READS_ORDERS._replace(operation=DESCRIBE)
    assert known(rights, describes, rights.now, rights.now) == (True, True)


def test_right_is_unknown_from_the_request_to_the_response() -> None:
    """While a change is under way, a request may be permitted or denied; afterwards only one of both."""
    rights = Rights()
    granted = change(rights, add=(ALLOWED,))
    assert known(rights, READS_ORDERS, 0, 0) == (False, False)
    assert known(rights, READS_ORDERS, granted, granted + 1) == (True, False)
    revoked = change(rights, remove=(ALLOWED,))
    assert known(rights, READS_ORDERS, granted + 2, revoked - 1) == (True, True)
    assert known(rights, READS_ORDERS, revoked, revoked) == (True, False)
    assert known(rights, READS_ORDERS, granted, rights.now) == (True, False)
    assert known(rights, READS_ORDERS, rights.now, rights.now) == (False, False)


def test_change_whose_result_is_not_known_stays_unknown() -> None:
    """After an error, or without a response, the next change decides."""
    rights = Rights()
    request = CreateAclsRequest(creations=(ALLOWED.creation(),))
    requested = rights.tick(0.0)
    rights.changing(request, requested)
    failed = CreateAclsResponse(results=(AclCreationResult(error_code=Errors.KAFKA_STORAGE_ERROR),))
    rights.changed(request, failed, requested, rights.tick(0.0))
    assert known(rights, READS_ORDERS, rights.now, rights.now) == (True, False)
    change(rights, add=(ALLOWED,))
    assert known(rights, READS_ORDERS, rights.now, rights.now) == (True, True)
    assert repr(rights) == "<rights: 1 ACLs, 0 unknown>"


def test_durable_change_applies_before_its_response() -> None:
    rights = Rights()
    rights.changing(CreateAclsRequest(creations=(ALLOWED.creation(),)), rights.tick(0.0))
    acl = Acl(
        ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ,
        PermissionType.ALLOW,
    )  # fmt: skip
    rights.applied((acl,), (), rights.tick(0.0))
    assert known(rights, READS_ORDERS, rights.now, rights.now) == (True, True)
    rights.applied((), (acl,), rights.tick(0.0))
    assert known(rights, READS_ORDERS, rights.now, rights.now) == (False, False)


def test_moments_have_times() -> None:
    rights = Rights()
    moments = [rights.tick(time_s) for time_s in (1.0, 1.0, 2.0)]
    assert [rights.moment_of(time_s) for time_s in (0.0, 1.0, 1.5, 9.0)] == [0, 1, 3, 3]
    assert moments == [1, 2, 3]
