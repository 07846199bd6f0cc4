"""One broker for all that is sent here: none of it may harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.hostile.wire import Target, started


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker in its own process, which must still be there to be stopped at the end."""
    # Where this is full, the system of who wants to connect waits for a second.
    settings = {"socket.listen.backlog.size": "2000"}
    with started(tmp_path_factory.mktemp("hostile"), settings) as target:
        yield target
