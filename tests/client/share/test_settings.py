"""Settings of a share consumer: accepted, rejected and ignored ones."""

from __future__ import annotations

import pytest

from konvene.client.errors import Misconfigured
from konvene.client.share.session import FetchTerms
from konvene.client.share.settings import ShareSettings, share_settings


def test_settings_become_arguments() -> None:
    given = {
        "group.id": "g", "client.id": "c", "client.rack": "east", "max.poll.records": "7",
        "fetch.max.wait.ms": "10", "fetch.min.bytes": "2", "fetch.max.bytes": "3",
        "share.acquire.mode": "RECORD_LIMIT", "share.acknowledgement.mode": "explicit",
        "reconnect.backoff.ms": "1",
    }  # fmt: skip
    terms = FetchTerms(max_wait_ms=10, min_bytes=2, max_bytes=3, max_records=7, record_limit=True)
    assert share_settings(given) == ShareSettings(
        "g", "c", {"terms": terms, "explicit": True, "client_rack": "east"}, ("reconnect.backoff.ms",)
    )
    assert share_settings({}) == ShareSettings(None, "", {"terms": FetchTerms()}, ())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"max.poll.records": "many"}, "Invalid value many for configuration max.poll.records: Not a number"),
        ({"max.poll.records": "0"}, "Value must be at least 1"),
        ({"share.acquire.mode": "x"}, "it is batch_optimized or record_limit"),
        ({"share.acknowledgement.mode": "x"}, "it is implicit or explicit"),
        (
            {"isolation.level": "read_committed", "auto.offset.reset": "latest"},
            r"^auto\.offset\.reset, isolation\.level cannot be set when using a share group\.$",
        ),
        ({"group.protocol": "consumer"}, r"^group\.protocol cannot be set when using a share group\.$"),
    ],
)
def test_invalid_settings_are_rejected(given: dict[str, str], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        share_settings(given)
