"""The cases of tests/authorization_cases on Apache Kafka with its `StandardAuthorizer`.

Their outcomes are Kafka's; `test_authorization_data.py` and `test_authorization_recorded.py` compare konvene
with the same outcomes.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.against.brokers import Unavailable
from tests.authorization_cases.cases import Case, play
from tests.authorization_cases.cases_cluster import CASES as CLUSTER_CASES
from tests.authorization_cases.cases_data import CASES as DATA_CASES
from tests.authorization_cases.kafka_stage import KafkaStage, kafka_stage
from tests.authorization_cases.outcomes import compare, sample
from tests.authorization_cases.stage import AuditedKafka, stage_of

pytestmark = pytest.mark.java

CASES = (*DATA_CASES, *CLUSTER_CASES)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaStage]:
    try:
        with kafka_stage(tmp_path_factory.mktemp("authorization")) as stage:
            yield stage
    except Unavailable as missing:
        pytest.skip(f"Apache Kafka is missing: {missing}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_outcome_is_kafkas(case: Case, stage: KafkaStage) -> None:
    prefix = f"{CASES.index(case)}-"
    outcomes = asyncio.run(play(stage, case, prefix))
    assert [(rights, want, got) for rights, want, got in outcomes if want != got] == []


def test_recorded_outcomes_are_kafkas(tmp_path: Path) -> None:
    """None, all, and some sets of rights; `python -m tests.authorization_cases.outcomes --kafka` has all."""
    chosen = sample(4, seed=1)
    try:
        with stage_of(AuditedKafka, tmp_path, chosen) as (stage, world):
            _, differences = compare(stage, world, chosen)
    except Unavailable as missing:
        pytest.skip(f"Apache Kafka is missing: {missing}")
    assert "\n".join(map(str, differences)) == ""
