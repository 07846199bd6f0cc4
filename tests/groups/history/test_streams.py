"""Rows of streams groups: what is inferred from a coordinator's log is what that coordinator told live."""

from __future__ import annotations

from random import Random

import pytest
from tests.groups.history.logs import compacted, contradictions, told
from tests.groups.history.walking import Walk, plain


@pytest.mark.parametrize("seed", range(60))
def test_the_log_tells_what_was_told_live(seed: int) -> None:
    """Each row, in order: why, when, who came when, and how many tasks moved."""
    walk = Walk(seed)
    walk.walk(60)
    assert plain(told(walk.log)) == plain(walk.told)


@pytest.mark.parametrize("seed", range(15))
def test_no_compaction_makes_it_tell_otherwise(seed: int) -> None:
    """Prefixes with their tombstones and without, and windows in the middle."""
    walk, random = Walk(seed), Random(seed)
    walk.walk(60)
    log, full = walk.log, told(walk.log)
    for end in range(1, len(log) + 1, 3):
        assert contradictions(told(compacted(log, 0, end)), full) == []
        assert contradictions(told(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(told(compacted(log, begin, end)), full) == []
