"""konvene's authorizer and Apache Kafka's `StandardAuthorizer` answer random questions alike."""

import pytest

from .authorizer_oracle import compare
from .brokers import Unavailable

pytestmark = pytest.mark.java

QUESTIONS = 20_000
"""`python -m tests.against.authorizer_oracle` asks ten times as many."""


def test_answers_to_random_questions_are_kafkas() -> None:
    """Decisions and lines of the audit, while ACLs are added and removed."""
    try:
        found = compare(seed=2, questions=QUESTIONS)
    except Unavailable as missing:
        pytest.skip(f"Kafka's authorizer is missing: {missing}")
    assert found.differences == []
    # Neither permits everything nor nothing.
    assert QUESTIONS // 10 < found.permitted < found.questions - QUESTIONS // 10
