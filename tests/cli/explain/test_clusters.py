"""`konvene explain` of logs of several clusters."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cli.explain.test_explain import CLASSIC, lines, run


@pytest.fixture
def two_clusters(tmp_path: Path) -> Path:
    """A directory with two data directories, one of which has a cluster id."""
    for name in ("a", "b"):
        shutil.copytree(CLASSIC, tmp_path / "parent" / name)
    (tmp_path / "parent" / "a" / "meta.properties").write_text("version=1\ncluster.id=ours\nnode.id=1\n")
    return tmp_path / "parent"


def test_groups_of_several_clusters_are_all_explained(two_clusters: Path) -> None:
    """Each row has its cluster, and the clusters are listed."""
    output = run(str(two_clusters), "--group", "billing", "--limit", "12")
    heads = [line for line in output.out.splitlines() if line.startswith("2026-")]
    assert {line.rpartition(", ")[2] for line in heads} == {"cluster ours", "cluster unnamed"}
    tables = [line for line in output.out.splitlines() if line.startswith(("CLUSTER ", "ours ", "unnamed "))]
    assert [line.split()[1] for line in tables if line.startswith("CLUSTER")] == ["GROUP", "STORM", "CLIENT"]
    assert "The logs are of 2 clusters: unnamed, ours; --cluster NAME selects one.\n" in output.err
    found = lines(run(str(two_clusters), "--group", "billing", "--json"))
    assert {row["cluster"] for row in found} == {"", "ours"}


def test_cluster_option_selects_a_cluster(two_clusters: Path) -> None:
    """It also names the cluster of a directory without an id."""
    for name in ("ours", "theirs"):
        found = lines(run(str(two_clusters), "--cluster", name, "--json"))
        assert {row["cluster"] for row in found} == {name}
        steps = run(str(two_clusters), "--cluster", name, "--group", "billing", "--why", "3")
        assert steps.code == 0 and "(classic), generation 2 → 3" in steps.out
    (two_clusters / "b" / "meta.properties").write_text("version=1\ncluster.id=theirs\nnode.id=1\n")
    unknown = run(str(two_clusters), "--cluster", "other")
    assert (unknown.code, unknown.err) == (
        1, "konvene: cluster other not found in the logs\n  Clusters in the logs: ours, theirs.\n",
    )  # fmt: skip
    ambiguous = run(str(two_clusters), "--group", "billing", "--why", "3")
    assert ambiguous.code == 1
    assert ambiguous.err.endswith(
        "konvene: billing has a rebalance to 3 in 2 clusters: ours, theirs\n  --cluster NAME selects one.\n"
    )
