"""Each served API with many sets of rights: responses, effects and the audit are Kafka's."""

from __future__ import annotations

from pathlib import Path

from tests.authorization_cases.conversations import CONVERSATIONS, WITHOUT_ROWS
from tests.authorization_cases.outcomes import compare, read, sample
from tests.authorization_cases.stage import AuditedKonvene, stage_of

from konvene.broker.net.router import HANDLERS
from konvene.messages import BY_NAME


def test_every_served_api_has_conversations() -> None:
    """The recorded outcomes are those of the rows and their sets of rights."""
    assert set(HANDLERS) - {BY_NAME[row.api_name].key for row in CONVERSATIONS} == WITHOUT_ROWS & set(
        HANDLERS
    )
    recorded = read()
    assert {name: sorted(outcomes) for name, outcomes in recorded.items()} == {
        row.name: sorted(row.sets_of_rights()) for row in CONVERSATIONS
    }


def test_outcomes_are_kafkas(tmp_path: Path) -> None:
    """None, all, and some sets of rights; `python -m tests.authorization_cases.outcomes` has all."""
    chosen = sample(8)
    with stage_of(AuditedKonvene, tmp_path, chosen) as (stage, world):
        count, differences = compare(stage, world, chosen)
    assert "\n".join(map(str, differences)) == ""
    assert count >= 600
