"""ACLs in the catalogue, with the cases of Kafka's `AclControlManagerTest`."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.cluster.acls import ACLS_CHANGED
from konvene.cluster.catalogue import Catalogue
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.create_acls import AclCreation, CreateAclsRequest
from konvene.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from konvene.shard.contract import Context, Outcome

VALID: dict[str, Any] = {
    "resource_type": 2, "resource_name": "foo", "resource_pattern_type": 3, "principal": "User:alice",
    "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
ANY: dict[str, Any] = {
    "resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1,
    "resource_name_filter": None, "principal_filter": None, "host_filter": None,
}  # fmt: skip


class Acls:
    """A catalogue to which requests are sent."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.last = Outcome()
        self._ids = 0

    def create(self, *changes: dict[str, Any]) -> list[tuple[int, str | None]]:
        """Create ACLs that differ from `VALID`; return the result of each."""
        creations = tuple(AclCreation(**(VALID | change)) for change in changes)
        response = self._send(CreateAclsRequest(creations=creations), len(creations))
        return [(result.error_code, result.error_message) for result in response.results]

    def delete(self, *changes: dict[str, Any]) -> list[Any]:
        """Delete the ACLs that filters select; return the result of each filter."""
        filters = tuple(DeleteAclsFilter(**(ANY | change)) for change in changes)
        return list(self._send(DeleteAclsRequest(filters=filters), 0).filter_results)

    def _send(self, request: Any, ids: int) -> Any:
        fresh = tuple(str(Uuid((self._ids + n + 1).to_bytes(16, "big"))) for n in range(ids))
        self._ids += ids
        self.last = self.catalogue.handle(request, Context(0, {}, fresh_ids=fresh))
        for record in self.last.records:
            self.catalogue.replay(record)
        return self.last.replies[0].response

    @property
    def names(self) -> list[str]:
        return sorted(acl.resource_name for acl in self.catalogue.state.acls.values())


def test_acls_are_created_once() -> None:
    """A duplicate in the request or in the log is a success without a record."""
    acls = Acls()
    assert acls.create({}, {"resource_name": "bar"}, {}) == [(0, None)] * 3
    assert acls.names == ["bar", "foo"]
    assert [(e.verb, len(e.subject[0])) for e in acls.last.effects] == [(ACLS_CHANGED, 2)]
    assert acls.create({}) == [(0, None)]
    assert acls.last.records == acls.last.effects == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type"
            " from the principal name)",
        ),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]"),
    ],
)
def test_invalid_acls_are_rejected_one_by_one(change: dict[str, Any], message: str) -> None:
    acls = Acls()
    assert acls.create(change, {}) == [(Errors.INVALID_REQUEST, message), (0, None)]
    assert acls.names == ["foo"]


@pytest.mark.parametrize("host", ["*", "10.0.0.1", "10.0.0.0/8", "2001:db8::/32", "any text"])
def test_hosts_that_are_accepted(host: str) -> None:
    assert Acls().create({"host": host}) == [(0, None)]


def test_filters_delete_what_they_select() -> None:
    acls = Acls()
    acls.create({}, {"resource_name": "bar"}, {"resource_name": "fo", "resource_pattern_type": 4})
    literal = {"resource_type_filter": 2, "resource_name_filter": "foo", "pattern_type_filter": 3}
    (result,) = acls.delete(literal)
    assert [m.resource_name for m in result.matching_acls] == ["foo"]
    assert acls.names == ["bar", "fo"]
    matching = acls.delete(literal | {"pattern_type_filter": 2})
    assert [m.resource_name for m in matching[0].matching_acls] == ["fo"]
    everything = acls.delete({}, {})
    assert [[m.resource_name for m in r.matching_acls] for r in everything] == [["bar"], ["bar"]]
    assert acls.names == []
    assert len(acls.last.records) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type_filter": 99}, "Unknown patternFilter."),
        ({"pattern_type_filter": 99}, "Unknown patternFilter."),
        ({"operation": 99}, "Unknown entryFilter."),
        ({"permission_type": 99}, "Unknown entryFilter."),
    ],
)
def test_unknown_filters_are_rejected(change: dict[str, Any], message: str) -> None:
    acls = Acls()
    acls.create({})
    (result,) = acls.delete(change)
    assert (result.error_code, result.error_message) == (Errors.INVALID_REQUEST, message)
    assert acls.names == ["foo"]
