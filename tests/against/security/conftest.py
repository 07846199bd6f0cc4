"""One secured broker for all tests here that leave it standing, and one process of each client library."""

from collections.abc import Iterator

import pytest

from ..clients import Client, Fleet, fleet_of
from .cluster import SecuredCluster, secured_cluster

IDLE_WITHIN_S = 90
"""Within which a role ends: Java's producer may wait for 60 s (`max.block.ms`)."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


class Workers:
    """A process of each library, started on first use, which is given one role after another."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._clients: dict[str, Client] = {}

    def __getitem__(self, library: str) -> Client:
        """Return the library's process, without a role."""
        client = self._clients.get(library)
        if client is None or client.process.poll() is not None:
            client = self._clients[library] = self.fleet.launch(library)
        client.call("start", within_s=IDLE_WITHIN_S, role="idle")
        return client

    def rest(self) -> None:
        """End every role."""
        for library in self._clients:
            self[library]


@pytest.fixture(scope="session")
def own_workers(cluster: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with fleet_of(cluster.broker.bootstrap, tmp_path_factory.mktemp("workers")) as fleet:
        yield Workers(fleet)


@pytest.fixture
def workers(own_workers: Workers) -> Iterator[Workers]:
    yield own_workers
    own_workers.rest()
