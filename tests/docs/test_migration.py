"""The guide to migrations: what it says stands in the way is what the coordinator looks for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks, rows
from tests.docs.test_examples import run

from konvene.configs.broker.table import BROKER
from konvene.groups.streams.classic.client_versions import RELEASES
from konvene.groups.streams.classic.user_data import LATEST_VERSION

GUIDE = ROOT / "docs" / "migration.md"


@pytest.mark.parametrize("kind", ["streams", "consumer"])
def test_all_that_stands_in_the_way_has_its_row(kind: str) -> None:
    """In the order of the code, each with what to do about it."""
    home = {"consumer": "consumer/conversion.py", "streams": "streams/classic/conversion.py"}[kind]
    source = (ROOT / "src" / "konvene" / "groups" / home).read_text("utf-8")
    looked_for = list(dict.fromkeys(re.findall(r'\bBlocker\(\s*"([a-z-]+)"', source)))
    table = rows(GUIDE, f"{kind}-blockers")
    assert sorted(code.strip("`") for code, _, _ in table) == sorted(looked_for)
    assert all(what and remedy for _, what, remedy in table)


def test_policies_of_the_guide_are_those_of_the_setting() -> None:
    text = GUIDE.read_text("utf-8")
    policies = BROKER["konvene.streams.migration.policy"].one_of
    assert policies is not None
    for policy in policies:
        assert f"| `{policy.lower()}` |" in text


def test_all_versions_of_user_data_are_told() -> None:
    """Which releases say them is told by ranges."""
    told = GUIDE.read_text("utf-8").partition("| Kafka Streams | User data |")[2].partition("\n\n")[0]
    found: set[int] = set()
    for cell in re.findall(r"^\| [^|]+ \| ([\d, to]+) \|", told, re.MULTILINE):
        ends = [int(number) for number in re.findall(r"\d+", cell)]
        found |= set(range(ends[0], ends[-1] + 1))
    assert found == {row.version for row in RELEASES} == set(range(1, LATEST_VERSION + 1))


def test_consumers_of_the_example_change_their_group_and_change_it_back(address: str, tmp_path: Path) -> None:
    """As the page says."""
    (block,) = (b for b in blocks() if "parcels-to-sort" in b.text)
    program = block.text.replace("localhost:9092", address)
    program = program.replace("parcels-to-sort", "more-to-sort").replace("sorters", "more-sorters")
    assert run([sys.executable, "-c", program], address, tmp_path) == "classic 1\nconsumer 2\nclassic 1\n"
