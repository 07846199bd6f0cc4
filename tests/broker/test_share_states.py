"""Share states as the broker has them: asked before there is a topic, kept over restarts, gone with one."""

from __future__ import annotations

from pathlib import Path

from tests.broker.handlers.asking import Asking, told

from konvene.errors import Errors
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateAnswer,
    StateBatch,
    SummaryAnswer,
    Write,
)

TOPIC = "orders"
QUICK = {"share.coordinator.state.topic.num.partitions": "3"}


def test_whoever_asks_first_has_the_topic_made(tmp_path: Path) -> None:
    async def story(asking: Asking) -> None:
        key = SharePartitionKey("g", await asking.topic(TOPIC), 0)
        states = asking.broker.share_states
        assert await states.submit(Write(key, 0, 0, 0, 0, ())) == Answer(
            Errors.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
        )
        assert await states.submit(Initialize(key, 1, -1)) == Answer()
        batches = (StateBatch(4, 9, 0, 1),)
        assert await states.submit(Write(key, 1, 0, 4, 0, batches)) == Answer()
        assert await states.submit(Read(key, 3)) == StateAnswer(
            state_epoch=1, start_offset=4, batches=batches
        )
        assert await states.submit(ReadSummary(key, 3)) == SummaryAnswer(
            state_epoch=1, leader_epoch=3, start_offset=4, delivery_complete_count=0
        )
        assert asking.broker.topics.by_name["__share_group_state"].partitions == 3
        assert await states.submit(Delete(key)) == Answer()
        assert await states.submit(ReadSummary(key, 3)) == SummaryAnswer()

    told(tmp_path, story, QUICK)


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    keys = []

    async def before(asking: Asking) -> None:
        key = SharePartitionKey("g", await asking.topic(TOPIC), 0)
        keys.append(key)
        states = asking.broker.share_states
        await states.submit(Initialize(key, 1, 0))
        for offset in range(10):
            batch = StateBatch(offset, offset, 2, 1)
            assert await states.submit(Write(key, 1, 0, 0, offset + 1, (batch,))) == Answer()

    async def after(asking: Asking) -> None:
        answer = await asking.broker.share_states.submit(Read(keys[0], 0))
        assert answer == StateAnswer(state_epoch=1, start_offset=0, batches=(StateBatch(0, 9, 2, 1),))

    told(tmp_path, before, QUICK)
    told(tmp_path, after, QUICK)
