"""The hostile conversations of tests/security_cases with Apache Kafka.

Their outcomes are Kafka's; `tests/broker/hostile/test_security.py` compares konvene with the same outcomes.
"""

from collections.abc import Iterator

import pytest
from tests.against.brokers import Kafka, Unavailable
from tests.security_cases.conversations import CONVERSATIONS, Conversation
from tests.security_cases.oauth_conversations import OAUTH_CONVERSATIONS
from tests.security_cases.stage import Stage, secured_stage
from tests.security_cases.tls_changes import (
    ACCEPTED,
    LOCATION,
    alter,
    described_secret,
    mismatched,
    rotate,
    unusable_changes,
)

pytestmark = pytest.mark.java

ALL = (*CONVERSATIONS, *OAUTH_CONVERSATIONS)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    try:
        with secured_stage(tmp_path_factory.mktemp("security"), Kafka) as stage:
            yield stage
    except Unavailable as missing:
        pytest.skip(f"Apache Kafka is missing: {missing}")


@pytest.mark.parametrize("conversation", ALL, ids=lambda one: one.name)
def test_outcome_is_kafkas(conversation: Conversation, stage: Stage) -> None:
    assert conversation.play(stage) == conversation.kafka


def test_unusable_tls_settings_are_rejected(stage: Stage) -> None:
    """With this error and message, and the old certificate stays."""
    for name, answer, expected, is_unchanged in unusable_changes(stage):
        assert answer.begins_like(expected), (name, answer)
        assert is_unchanged, name


def test_a_key_store_is_replaced_while_the_broker_serves(stage: Stage) -> None:
    rotate(stage)


def test_a_secret_is_described_without_its_value(stage: Stage) -> None:
    assert described_secret(stage) == (None, True)


def test_a_key_of_another_certificate(stage: Stage) -> None:
    """Kafka accepts it, and no handshake succeeds."""
    assert alter(stage, {LOCATION: mismatched(stage)}) == ACCEPTED
