"""The hostile conversations of tests/security_cases with Apache Kafka.

Their outcomes are Kafka's; `tests/broker/hostile/test_security.py` compares konvene with the same outcomes.
"""

from collections.abc import Iterator

import pytest
from tests.against.brokers import Kafka, Konvene, Unavailable
from tests.against.tools import Step, Tools, run_step, tools
from tests.security_cases.conversations import CONVERSATIONS, Conversation
from tests.security_cases.oauth_conversations import OAUTH_CONVERSATIONS
from tests.security_cases.stage import Stage, secured_stage, until
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


@pytest.fixture(scope="module")
def konvene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with secured_stage(tmp_path_factory.mktemp("konvene"), Konvene) as stage:
        yield stage


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    try:
        with tools(tmp_path_factory.mktemp("tools") / "tools.log") as jvm:
            yield jvm
    except Unavailable as missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")


def test_kafka_configs_replaces_a_key_store(stage: Stage, konvene: Stage, jvm: Tools) -> None:
    """And is refused one that cannot be used, with the same output on both brokers."""
    assert replace_with_tool(konvene, jvm) == replace_with_tool(stage, jvm)


def replace_with_tool(stage: Stage, jvm: Tools) -> list[str]:
    """Return the output of each command; of an error only what it begins with."""
    broken, good = stage.folder / "broken.pem", stage.folder / "by-tool.pem"
    broken.write_text("broken")
    certificate = stage.write_key_store(good)
    broker = "kafka-configs --entity-type brokers --entity-name 1"
    secret = "listener.name.sasl.ssl.keystore.password"
    answers = []
    for line in (
        f"{broker} --alter --add-config {LOCATION}={broken}",
        f"{broker} --alter --add-config {LOCATION}={good}",
        f"{broker} --alter --add-config {secret}=secret",
    ):
        output = "\n".join(run_step(Step(line), jvm, stage.broker)).replace(str(stage.folder), "FOLDER")
        answers.append(output.partition("InvalidConfigurationException: ")[0])
    until(lambda: stage.served_certificate() == certificate)
    described: list[str] = []

    def is_complete() -> bool:
        out = jvm.run(stage.broker, f"{broker} --describe").out.replace(str(stage.folder), "FOLDER")
        described[:] = [
            line.strip() for name in (LOCATION, secret) for line in out.splitlines() if f" {name}=" in line
        ]
        return len(described) == 2

    until(is_complete)
    return [*answers, *described]
