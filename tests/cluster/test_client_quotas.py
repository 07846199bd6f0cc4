"""Client quotas in the catalogue, with the cases of Kafka's `ClientQuotasRequestTest`."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.cluster.catalogue import Catalogue
from konvene.cluster.client_quotas import QuotaAlterations, describe
from konvene.errors import Errors
from konvene.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from konvene.messages.describe_client_quotas import ComponentData
from konvene.records.cluster_log import decode_cluster_record, encode_cluster_record
from konvene.shard.contract import Context
from konvene.shard.errors import ClusterError

Entity = dict[str, str | None]
Filter = tuple[tuple[str, int, str | None], ...]

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ALICE: Entity = {"user": "alice"}


def entry(entity: Entity, *ops: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(
            OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in ops
        ),
    )


def alter(
    catalogue: Catalogue,
    *entries: EntryData,
    validate_only: bool = False,
    unresolvable: frozenset[str] = frozenset(),
) -> list[tuple[int, str | None]]:
    """Decide a request, replay its records as they are in the log, and return each entity's result."""
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    outcome = catalogue.handle(QuotaAlterations(request, unresolvable), Context(1, {}))
    for record in outcome.records:
        catalogue.replay(decode_cluster_record(*encode_cluster_record(record)))
    return [(result.error_code, result.error_message) for result in outcome.replies[0].response.entries]


def quotas_of(catalogue: Catalogue, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    filter_ = tuple(ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components)
    return {entity: dict(quotas) for entity, quotas in describe(catalogue.state, filter_, strict=strict)}


OK = (Errors.NONE, None)


def test_quotas_are_set_changed_and_removed() -> None:
    """A removed quota that does not exist, and one that has the value already, write no record."""
    catalogue = Catalogue()
    both: Entity = {"user": "alice", "client-id": None}
    assert alter(catalogue, entry(both, ("producer_byte_rate", 1e6), ("request_percentage", 12.5))) == [OK]
    key = (("client-id", None), ("user", "alice"))
    assert quotas_of(catalogue) == {key: {"producer_byte_rate": 1e6, "request_percentage": 12.5}}

    again = AlterClientQuotasRequest(
        entries=(entry(both, ("producer_byte_rate", 1e6), ("consumer_byte_rate", None)),)
    )
    assert catalogue.handle(QuotaAlterations(again), Context(1, {})).records == ()

    assert alter(catalogue, entry(both, ("producer_byte_rate", None), ("request_percentage", 1.0))) == [OK]
    assert quotas_of(catalogue) == {key: {"request_percentage": 1.0}}
    assert alter(catalogue, entry(both, ("request_percentage", None))) == [OK]
    assert quotas_of(catalogue) == {}


def test_nothing_changes_if_a_request_only_validates() -> None:
    catalogue = Catalogue()
    assert alter(catalogue, entry(ALICE, ("producer_byte_rate", 5.0)), validate_only=True) == [OK]
    assert quotas_of(catalogue) == {}


@pytest.mark.parametrize(
    ("entity", "op", "message"),
    [
        ({}, ("producer_byte_rate", 1.0), "Invalid empty client quota entity"),
        ({"what": "a"}, ("producer_byte_rate", 1.0), "Unhandled client quota entity type: what"),
        ({"user": ""}, ("producer_byte_rate", 1.0), "Empty user not supported"),
        (ALICE, ("bad", 1.0), "Invalid configuration key bad"),
        (ALICE, ("connection_creation_rate", 1.0), "Invalid configuration key connection_creation_rate"),
        ({"ip": None}, ("producer_byte_rate", 1.0), "Invalid configuration key producer_byte_rate"),
        (ALICE, ("producer_byte_rate", 0.0), "Quota producer_byte_rate must be greater than 0"),
        (ALICE, ("request_percentage", -1.0), "Quota request_percentage must be greater than 0"),
        (ALICE, ("producer_byte_rate", 10_000.1), "producer_byte_rate cannot be a fractional value."),
        (
            ALICE,
            ("consumer_byte_rate", 1e19),
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": "1.2.3.4"},
            ("connection_creation_rate", 2.0**31),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            {"ip": "1.2.3.4", "user": "alice"},
            ("connection_creation_rate", 1.0),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            {"ip": "no.such.host"},
            ("connection_creation_rate", 1.0),
            "no.such.host is not a valid IP or resolvable host.",
        ),
    ],
)  # fmt: skip
def test_an_invalid_quota_changes_nothing_of_its_entity(
    entity: Entity, op: tuple[str, float], message: str
) -> None:
    """The message is Kafka's, and the other entities of the request are changed."""
    catalogue = Catalogue()
    results = alter(
        catalogue,
        entry(entity, ("other", None), op),
        entry({"client-id": "c"}, ("controller_mutation_rate", 0.5)),
        unresolvable=frozenset({"no.such.host"}),
    )
    assert results == [(Errors.INVALID_REQUEST, message), OK]
    assert quotas_of(catalogue) == {(("client-id", "c"),): {"controller_mutation_rate": 0.5}}


def test_a_fraction_below_a_millionth_is_accepted() -> None:
    catalogue = Catalogue()
    assert alter(catalogue, entry(ALICE, ("producer_byte_rate", 10_000.000_000_1))) == [OK]


def test_an_entity_or_key_that_is_repeated_is_rejected() -> None:
    catalogue = Catalogue()
    repeated = entry({"user": "bob"}, ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0))
    results = alter(
        catalogue,
        entry(ALICE, ("producer_byte_rate", 1.0)),
        entry(ALICE, ("producer_byte_rate", 2.0)),
        repeated,
    )
    assert results == [
        (Errors.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"),
        (Errors.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=bob})"),
    ]
    assert quotas_of(catalogue) == {(("user", "alice"),): {"producer_byte_rate": 1.0}}


MATCHED: tuple[tuple[Entity, float], ...] = (
    ({"user": "user-1", "client-id": "client-id-1"}, 50.50),
    ({"user": "user-2", "client-id": "client-id-1"}, 51.51),
    ({"user": "user-3", "client-id": "client-id-2"}, 52.52),
    ({"user": None, "client-id": "client-id-1"}, 53.53),
    ({"user": "user-1", "client-id": None}, 54.54),
    ({"user": "user-3", "client-id": None}, 55.55),
    ({"user": "user-1"}, 56.56),
    ({"user": "user-2"}, 57.57),
    ({"user": "user-3"}, 58.58),
    ({"user": None}, 59.59),
    ({"client-id": "client-id-2"}, 60.60),
)


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ((("user", EXACT, "user-1"),), False, 3),
        ((("user", EXACT, "unknown"),), False, 0),
        ((("client-id", EXACT, "client-id-2"),), False, 2),
        ((("user", DEFAULT, None),), False, 2),
        ((("user", EXACT, "user-2"),), True, 1),
        ((("client-id", EXACT, "client-id-1"),), True, 0),
        ((("user", SPECIFIED, None),), True, 4),
        ((("user", SPECIFIED, None),), False, 10),
        ((("client-id", SPECIFIED, None),), True, 1),
        ((("client-id", SPECIFIED, None),), False, 7),
        ((("user", EXACT, "user-1"), ("client-id", SPECIFIED, None)), True, 2),
        ((("user", EXACT, "user-1"), ("client-id", DEFAULT, None)), True, 1),
        ((("ip", SPECIFIED, None),), False, 2),
        ((), False, 13),
        ((), True, 0),
    ],
)
def test_a_filter_selects_entities(components: Filter, strict: bool, count: int) -> None:
    """Exact names, defaults and any name, open-ended or strict."""
    catalogue = Catalogue()
    alter(catalogue, *(entry(entity, ("request_percentage", value)) for entity, value in MATCHED))
    addresses: tuple[Entity, ...] = ({"ip": "1.2.3.4"}, {"ip": "2.3.4.5"})
    alter(catalogue, *(entry(entity, ("connection_creation_rate", 10.0)) for entity in addresses))
    assert len(quotas_of(catalogue, *components, strict=strict)) == count


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ((("", EXACT, "a"),), Errors.INVALID_REQUEST),
        ((("user", EXACT, None),), Errors.INVALID_REQUEST),
        ((("user", SPECIFIED, "a"),), Errors.INVALID_REQUEST),
        ((("user", 9, None),), Errors.INVALID_REQUEST),
        ((("user", EXACT, "a"), ("user", EXACT, "b")), Errors.INVALID_REQUEST),
        ((("ip", EXACT, "::1"), ("user", EXACT, "a")), Errors.INVALID_REQUEST),
        ((("what", EXACT, "a"),), Errors.UNSUPPORTED_VERSION),
    ],
)
def test_an_invalid_filter_is_rejected(components: Filter, error: Errors) -> None:
    with pytest.raises(ClusterError) as rejected:
        quotas_of(Catalogue(), *components)
    assert rejected.value.error is error


def test_the_name_of_the_default_is_a_name_like_others() -> None:
    catalogue = Catalogue()
    alter(catalogue, entry({"client-id": "<default>"}, ("producer_byte_rate", 1.0)))
    assert quotas_of(catalogue, ("client-id", DEFAULT, None)) == {}
    assert len(quotas_of(catalogue, ("client-id", EXACT, "<default>"))) == 1
