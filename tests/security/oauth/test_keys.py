"""Key sets: what is parsed, and when an unknown key id is a reason to fetch them again."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.oauth.tokens import key_set

from konvene.security.oauth.keys import JsonWebKeySet, RefreshPolicy


@pytest.mark.parametrize(
    "document", [b"", b"{}", b"[]", b"null", b'{"keys": 1}', b"\xff", b"[" * 100_000, b" " * 2_000_000]
)
def test_other_documents_are_rejected(document: bytes) -> None:
    with pytest.raises(ValueError, match="the key set"):
        JsonWebKeySet.parse(document)


@pytest.mark.parametrize(
    "row",
    [
        {}, {"kty": "RSA"}, {"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "AA"},
        {"kty": "EC", "crv": "none", "x": "AA", "y": "AA"}, {"kty": ["RSA"]}, "key", None, 7,
    ],
)  # fmt: skip
def test_unusable_keys_are_left_out(row: object) -> None:
    rows = [*json.loads(key_set())["keys"], row]
    keys = JsonWebKeySet.parse(json.dumps({"keys": rows}).encode())
    assert [key.id for key in keys.keys] == ["k1", "k2"]


def test_keys_for_encryption_are_left_out() -> None:
    encryption = json.loads(key_set())["keys"][0] | {"kid": "e", "use": "enc"}
    assert not JsonWebKeySet.parse(key_set(encryption)).has("e")


def test_a_key_may_be_limited_to_one_algorithm() -> None:
    limited = json.loads(key_set())["keys"][0] | {"kid": "l", "alg": "RS512"}
    keys = JsonWebKeySet.parse(key_set(limited))
    assert [key.id for key in keys.candidates("l", "RS512")] == ["l"]
    assert keys.candidates("l", "RS256") == ()
    assert [key.id for key in keys.candidates(None, "RS512")] == ["k1", "l"]


def test_an_unknown_id_is_fetched_once_a_minute() -> None:
    policy = RefreshPolicy()
    assert policy.should_refresh("a", 0)
    assert not policy.should_refresh("a", 59_999)
    assert policy.should_refresh("b", 59_999)
    assert policy.should_refresh("a", 61_000)
    assert not policy.should_refresh("x" * 1_001, 200_000)


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 500)), max_size=200))
def test_a_flood_of_ids_causes_at_most_one_fetch_a_second(arrivals: list[tuple[str, int]]) -> None:
    policy, now_ms, fetched = RefreshPolicy(), 0, []
    for key_id, elapsed_ms in arrivals:
        now_ms += elapsed_ms
        if policy.should_refresh(key_id, now_ms):
            fetched.append(now_ms)
    assert all(after - before >= 1_000 for before, after in pairwise(fetched))
