"""Damage of logs is reported with its offsets, its time and its consequences; what is normal is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.answers.damaged_logs import changed, explained, flip, in_segments, kafkas_log
from tests.pipeline.answers.sample import Client, Model, together
from tests.pipeline.codec.logs import STORIES
from tests.pipeline.segments import cleaned, log, write

from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC
from konvene.pipeline.answers import Damage, Selection, document, summarise
from konvene.pipeline.answers.damage import Beside, assess, damaged, kind_of, sentence

# whole logs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", STORIES)
def test_whole_logs_have_none(tmp_path: Path, story: str) -> None:
    """Neither have logs that end within a batch, which a broker may be writing."""
    segment = kafkas_log(tmp_path / "logs", story)
    segment.write_bytes(segment.read_bytes()[:-5])
    gold = explained(tmp_path / "w", tmp_path / "logs")
    assert (gold.damage, gold.recovered, gold.damaged) == ([], [], {})


@pytest.mark.parametrize("before", [100, 400, 10_000])
def test_compacted_logs_have_none(tmp_path: Path, before: int) -> None:
    batches = log(1, 120)
    write(tmp_path / "logs", cleaned(batches, before), cuts=(30, 60, 90), whole=batches)
    assert explained(tmp_path / "w", tmp_path / "logs").damage == []


# damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "kind"),
    [(70, "checksum"), (24, "checksum"), (10, "malformed"), (18, "checksum"), (16, "unknown magic")],
    ids=["record", "last offset delta", "length", "crc", "magic"],
)
def test_a_flipped_bit(tmp_path: Path, at: int, kind: str) -> None:
    """Offsets and time are those of the batch; groups are those of its partition."""
    segment = kafkas_log(tmp_path / "logs", "consumer")
    whole = explained(tmp_path / "whole", tmp_path / "logs")
    batches = changed(segment, flip((38, at)))
    gold = explained(tmp_path / "w", tmp_path / "logs")
    (found,) = gold.damage
    _, first, last = batches[38]
    assert (found.topic, found.partition, found.batches) == (OFFSETS_TOPIC, 0, 1)
    assert (found.first_offset, found.last_offset, found.kinds) == (first, last, (kind,))
    assert found.bytes == batches[39][0] - batches[38][0]
    assert found.from_ms is not None and found.until_ms is not None and found.from_ms <= found.until_ms
    assert found.groups and set(found.groups) <= set(whole.groups)
    lost = {r.key for r in whole.rebalances} - {r.key for r in gold.rebalances}
    assert all(key[1] in found.groups for key in lost)
    assert found.rebalances == len(gold.damaged) > 0
    assert {key[1] for key in gold.damaged} <= set(found.groups)
    assert summarise(gold, Selection()).damage == (found,)
    assert summarise(gold, Selection(("alive-mixed",))).damage == ((found,) * ("alive-mixed" in found.groups))


def test_every_rebalance_that_changed_is_marked(tmp_path: Path) -> None:
    """A row that differs from that of the whole log is next to damage, for damage of any batch."""
    whole = explained(tmp_path / "whole", kafkas_log(tmp_path / "logs", "classic").parents[1])
    known = {r.key: r for r in whole.rebalances}
    count = 0
    for number in range(2, 60, 9):
        logs = tmp_path / str(number)
        changed(kafkas_log(logs, "classic"), flip((number, 75)))
        gold = explained(tmp_path / f"w{number}", logs)
        assert len(gold.damage) == 1
        for r in gold.rebalances:
            if known.get(r.key) != r:
                count += 1
                assert r.key in gold.damaged, r
    assert count > 3


def test_touching_batches_are_one_hole(tmp_path: Path) -> None:
    batches = changed(kafkas_log(tmp_path / "logs", "consumer"), flip((20, 70), (21, 70), (30, 16)))
    found = explained(tmp_path / "w", tmp_path / "logs").damage
    assert [(each.first_offset, each.last_offset, each.batches) for each in found] == [
        (batches[20][1], batches[21][2], 2), (batches[30][1], batches[30][2], 1)
    ]  # fmt: skip


def test_a_segment_that_ends_within_a_batch_before_another(tmp_path: Path) -> None:
    segment = kafkas_log(tmp_path / "logs", "consumer")
    _, middle, _ = in_segments(segment, [20, 40])
    whole = explained(tmp_path / "whole", tmp_path / "logs")
    batches = changed(middle, lambda data, _: data.__delitem__(slice(len(data) - 90, len(data))))
    gold = explained(tmp_path / "w", tmp_path / "logs")
    (found,) = gold.damage
    assert (whole.damage, found.kinds) == ([], ("truncated",))
    assert (found.first_offset, found.last_offset) == batches[-1][1:]
    assert found.until_ms is not None and gold.rebalances


def test_a_lost_segment_is_a_hole_that_was_not_found(tmp_path: Path) -> None:
    """If the log before it was not compacted."""
    batches = log(5, 700)
    paths = write(tmp_path / "logs", batches, cuts=(234, 467))
    lost = paths[1]
    first, after = int(lost.stem), int(paths[2].stem)
    lost.unlink()
    (found,) = explained(tmp_path / "w", tmp_path / "logs").damage
    assert (found.first_offset, found.last_offset, found.kinds) == (first, after - 1, ("not found",))
    assert (found.batches, found.bytes) == (0, 0) and found.from_ms is not None
    assert "were not found in the logs: rebalances of groups" in sentence(found)


def test_another_copy_of_the_log_has_the_records(tmp_path: Path) -> None:
    changed(kafkas_log(tmp_path / "a", "consumer"), flip((20, 70)))
    kafkas_log(tmp_path / "b", "consumer")
    gold = explained(tmp_path / "w", tmp_path / "a", tmp_path / "b")
    assert (gold.damage, gold.damaged) == ([], {})
    (found,) = gold.recovered
    assert found.recovered and found.batches == 1


# rules --------------------------------------------------------------------------------------------

WHERE: dict[str, Any] = {"cluster": "c", "topic": OFFSETS_TOPIC, "partition": 7}
READ = [Beside(100, 119, 5_000, 0, 900), Beside(161, 170, 9_000, 0, 1500)]


def bad(offset: int, position: int = 1000, length: int = 80, reason: str = "the checksum", **row: Any) -> Any:
    head = offset.to_bytes(8, "big", signed=True) + b"\x01" * 16
    made = {"segment_base_offset": 0, "file_position": position, "offset": offset, "length": length,
            "reason": reason, "bytes": head}  # fmt: skip
    return WHERE | made | row


def hole(*rows: Any, read: Any = READ, **more: Any) -> list[Damage]:
    return assess(rows, more.pop("spans", ()), {("c", OFFSETS_TOPIC, 7): read}, **more)


def test_a_hole_without_a_plausible_header_lies_between_its_neighbours() -> None:
    (found,) = hole(bad(1 << 40))
    assert (found.first_offset, found.last_offset) == (120, 160)
    assert (found.from_ms, found.until_ms) == (5_000, 9_000)


def test_a_hole_at_the_end_has_no_known_end() -> None:
    (found,) = hole(bad(-1, 2000))
    assert (found.first_offset, found.last_offset, found.until_ms) == (171, None, None)
    assert "offsets from 171 on" in sentence(found) and "since 1970-01-01 00:00:09" in sentence(found)


def test_undecodable_records_concern_their_groups_alone() -> None:
    rows = [
        bad(offset, reason="X: version 9 is not known", bytes=b"\0\0\0\4", group_id=group)
        for offset, group in ((130, "a"), (140, "b"))
    ]
    (found,) = hole(*rows, groups={("c", OFFSETS_TOPIC, 7): ["a", "b", "z"]})
    assert (found.records, found.batches, found.kinds) == (2, 0, ("unknown record version",))
    assert (found.groups, found.first_offset, found.last_offset) == (("a", "b"), 130, 140)
    assert sentence(found).startswith("2 records of __consumer_offsets-7 could not be read (unknown record")


@pytest.mark.parametrize(
    ("spans", "uncleaned", "count"),
    [
        (["whole", "missing", "whole"], True, 1),
        (["whole", "missing", "whole"], False, 0),
        (["compacted", "missing", "whole"], True, 0),
        (["whole", "missing", "compacted"], True, 0),
        (["missing", "whole"], True, 0),
    ],
)
def test_missing_spans(spans: list[str], uncleaned: bool, count: int) -> None:
    """Only one between two whole spans that no cleaner has thinned is damage."""
    rows = [
        WHERE | {"first_offset": 100 * n, "last_offset": 100 * n + 99, "kind": kind}
        for n, kind in enumerate(spans)
    ]
    sure = [(("c", OFFSETS_TOPIC, 7), 0)] if uncleaned else []
    assert len(hole(spans=rows, uncleaned=sure, read=[])) == count


def test_damage_of_the_audit_hides_causes() -> None:
    (found,) = assess([bad(3, segment_base_offset=-1) | {"topic": AUDIT_TOPIC}], (), {})
    assert "causes of rebalances may be missing" in sentence(found)
    assert found.concerns(("any",)) and not Damage("c", OFFSETS_TOPIC, 7, 0, 1, ("x",)).concerns(("any",))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("the checksum of the batch at 5 does not hold", "checksum"),
        ("magic 9 at 5: there is no batch", "unknown magic"),
        ("a batch of 9 bytes at 5 is longer than the log", "truncated"),
        ("OffsetCommit: version 9 is not known (known: 0-4)", "unknown record version"),
        ("the batch at offset 5 is out of order", "malformed"),
    ],
)
def test_kinds_of_reasons(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_rebalances_between_the_ones_beside_a_hole_are_marked() -> None:
    model = Model("app", "consumer", {"orders": 2})
    for name in ("ann", "bob", "cid"):
        model.join(Client(name, name))
        model.wait(60_000)
    rows = sorted(together(model).rebalances, key=lambda r: r.base_offset)

    def marked(offset: int, cluster: str = rows[0].cluster) -> set[int]:
        hole = Damage(cluster, OFFSETS_TOPIC, rows[0].log_partition, offset, offset, ("x",))
        return {key[-1] for key in damaged(rows, [hole])}

    assert marked(rows[1].last_offset + 1) == {rows[2].to_epoch}
    assert marked(rows[0].last_offset) == {rows[0].to_epoch}
    assert marked(rows[2].last_offset + 1) == set()
    assert marked(rows[0].last_offset, "other") == set()
    assert document(rows[2], damaged=True)["damaged"] is True and document(rows[2])["damaged"] is False
