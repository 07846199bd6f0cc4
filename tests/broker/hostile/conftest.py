"""One broker receives all hostile requests of this folder, and must survive them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.hostile.wire import Target, started


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Start a broker in its own process; stopping it at the end fails if it has crashed."""
    # If the backlog is full, the operating system retries a connection only after a second.
    settings = {"socket.listen.backlog.size": "2000"}
    with started(tmp_path_factory.mktemp("hostile"), settings) as target:
        yield target
