"""Precedence of quotas, with the cases of Kafka's `ClientQuotaManagerTest`."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.quotas.entities import QuotaEntity, quota_entity
from konvene.security.quotas.precedence import NO_QUOTAS, Tags, quota_table, sanitized

KEY = "producer_byte_rate"

LEVELS: tuple[QuotaEntity, ...] = tuple(
    quota_entity(parts)
    for parts in (
        (("user", "alice"), ("client-id", "app")),
        (("user", "alice"), ("client-id", None)),
        (("user", "alice"),),
        (("user", None), ("client-id", "app")),
        (("user", None), ("client-id", None)),
        (("user", None),),
        (("client-id", "app"),),
        (("client-id", None),),
    )
)
"""All entities that match the client `app` of alice, the most specific one first."""

TAGS = (
    Tags("alice", "app"), Tags("alice", "app"), Tags("alice", ""), Tags("alice", "app"), Tags("alice", "app"),
    Tags("alice", ""), Tags("", "app"), Tags("", "app"),
)  # fmt: skip


@pytest.mark.parametrize(
    "present", list(product((False, True), repeat=8)), ids=lambda p: "".join("01"[b] for b in p)
)
def test_the_most_specific_quota_applies(present: tuple[bool, ...]) -> None:
    """Of every subset of the eight levels, the first one; its tags tell what is measured together."""
    quotas = [(entity, {KEY: float(level)}) for level, entity in enumerate(LEVELS) if present[level]]
    random.Random(0).shuffle(quotas)
    table = quota_table(KEY, quotas)
    tags = table.tags("alice", "app")
    if True not in present:
        assert (table, table.limit(tags)) == (NO_QUOTAS, None)
        return
    level = present.index(True)
    assert (tags, table.limit(tags)) == (TAGS[level], float(level))


def test_quotas_of_one_form_measure_all_clients_in_that_form() -> None:
    """Clients without a quota are measured as well, so that a new quota counts what they used."""
    of_user = quota_table(KEY, [((("user", "bob"),), {KEY: 1.0})])
    assert (of_user.tags("alice", "app"), of_user.limit(Tags("alice", ""))) == (Tags("alice", ""), None)
    of_client = quota_table(KEY, [((("client-id", "x"),), {KEY: 1.0})])
    assert of_client.tags("alice", "app") == Tags("", "app")
    both = quota_table(KEY, [((("client-id", "x"), ("user", "bob")), {KEY: 1.0})])
    assert both.tags("alice", "app") == Tags("alice", "app")


def test_other_keys_and_addresses_are_not_in_the_table() -> None:
    assert not quota_table(
        KEY, [((("user", "a"),), {"consumer_byte_rate": 1.0}), ((("ip", None),), {KEY: 1.0})]
    )


NAMES = st.sampled_from(["a", "b", "", "<default>"])
ENTITIES = st.one_of(
    st.builds(lambda u: (("user", u),), st.none() | NAMES),
    st.builds(lambda c: (("client-id", c),), st.none() | NAMES),
    st.builds(lambda u, c: (("client-id", c), ("user", u)), st.none() | NAMES, st.none() | NAMES),
)


@given(st.dictionaries(ENTITIES, st.floats(1, 1e9)), NAMES.filter(bool), NAMES.filter(bool))
def test_tags_and_limit_agree(limits: dict[QuotaEntity, float], user: str, client_id: str) -> None:
    """The limit is that of an entity which matches the client."""
    table = quota_table(KEY, [(entity, {KEY: limit}) for entity, limit in limits.items()])
    tags = table.tags(user, client_id)
    limit = table.limit(tags)
    matching = [
        value
        for entity, value in limits.items()
        if all(name in (None, {"user": user, "client-id": client_id}[kind]) for kind, name in entity)
    ]
    assert (limit is None) == (not matching)
    assert limit is None or limit in matching
    if limit is not None:
        assert tags.user in (user, "") and tags.client_id in (client_id, "")


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("alice", "alice"),
        ("CN=a b, O=c*", "CN%3Da%20b%2C%20O%3Dc%2A"),
        ("ü~", "%C3%BC%7E"),
        ("a.b-c_d", "a.b-c_d"),
    ],
)
def test_users_are_encoded_in_metrics(user: str, expected: str) -> None:
    assert sanitized(user) == expected
