"""Members that consume, transform and produce in transactions keep every promise under the faults of each
seed, in classic groups and in consumer groups."""

from __future__ import annotations

import pytest
from tests.sim.seeds import assert_promises_are_kept

each_seed = pytest.mark.parametrize("seed", range(50))


@each_seed
@pytest.mark.parametrize("kind", ["transactional", "transactional-consumer"])
def test_every_promise_is_kept(seed: int, kind: str) -> None:
    assert_promises_are_kept(seed, kind)
