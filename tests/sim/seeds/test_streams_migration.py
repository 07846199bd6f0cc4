"""Applications that move between the classic and the streams protocol keep every promise, under the faults of
each seed."""

from __future__ import annotations

import pytest
from tests.sim.seeds.playing import assert_promises_are_kept


@pytest.mark.parametrize("seed", range(50))
def test_every_promise_is_kept(seed: int) -> None:
    assert_promises_are_kept(seed, "streams-migration")
