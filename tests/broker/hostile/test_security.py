"""Hostile conversations with secured listeners, with the outcomes of Apache Kafka.

`tests/against/test_hostile_security.py` plays the same conversations on Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.against.brokers import Konvene
from tests.security_cases.conversations import CONVERSATIONS, Conversation
from tests.security_cases.oauth_conversations import OAUTH_CONVERSATIONS
from tests.security_cases.stage import Stage, secured_stage
from tests.security_cases.tls_changes import (
    INVALID_REQUEST,
    LOCATION,
    alter,
    described_secret,
    mismatched,
    rotate,
    unusable_changes,
)

ALL = (*CONVERSATIONS, *OAUTH_CONVERSATIONS)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with secured_stage(tmp_path_factory.mktemp("security"), Konvene) as stage:
        yield stage


@pytest.mark.parametrize("conversation", ALL, ids=lambda one: one.name)
def test_outcome_is_kafkas(conversation: Conversation, stage: Stage) -> None:
    """Or, where Kafka's is different, the one that docs/differences.md explains."""
    differs = conversation.konvene is not None
    assert conversation.play(stage) == (conversation.konvene if differs else conversation.kafka)


def test_unusable_tls_settings_are_rejected(stage: Stage) -> None:
    """With Kafka's error and message, and the old certificate stays."""
    for name, answer, expected, is_unchanged in unusable_changes(stage):
        assert answer.begins_like(expected), (name, answer)
        assert is_unchanged, name


def test_a_key_store_is_replaced_while_the_broker_serves(stage: Stage) -> None:
    rotate(stage)


def test_a_secret_is_described_without_its_value(stage: Stage) -> None:
    assert described_secret(stage) == (None, True)


def test_a_key_of_another_certificate(stage: Stage) -> None:
    """It is rejected: no handshake could succeed."""
    assert alter(stage, {LOCATION: mismatched(stage)}).error == INVALID_REQUEST
