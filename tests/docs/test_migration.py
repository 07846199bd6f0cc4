"""The migration guide lists the coordinator's blockers, policies and user data versions."""

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
def test_every_migration_blocker_has_a_row(kind: str) -> None:
    """The guide's table lists every `Blocker` code, each with its meaning and its remedy."""
    home = {"consumer": "consumer/conversion.py", "streams": "streams/classic/conversion.py"}[kind]
    source = (ROOT / "src" / "konvene" / "groups" / home).read_text("utf-8")
    blocker_codes = list(dict.fromkeys(re.findall(r'\bBlocker\(\s*"([a-z-]+)"', source)))
    table = rows(GUIDE, f"{kind}-blockers")
    assert sorted(code.strip("`") for code, _, _ in table) == sorted(blocker_codes)
    assert all(meaning and remedy for _, meaning, remedy in table)


def test_policies_of_the_guide_are_those_of_the_setting() -> None:
    text = GUIDE.read_text("utf-8")
    policies = BROKER["konvene.streams.migration.policy"].one_of
    assert policies is not None
    for policy in policies:
        assert f"| `{policy.lower()}` |" in text


def test_every_user_data_version_is_in_the_table() -> None:
    """The table maps ranges of Kafka Streams releases to ranges of user data versions."""
    table = GUIDE.read_text("utf-8").partition("| Kafka Streams | User data |")[2].partition("\n\n")[0]
    found: set[int] = set()
    for cell in re.findall(r"^\| [^|]+ \| ([\d, to]+) \|", table, re.MULTILINE):
        ends = [int(number) for number in re.findall(r"\d+", cell)]
        found |= set(range(ends[0], ends[-1] + 1))
    assert found == {row.version for row in RELEASES} == set(range(1, LATEST_VERSION + 1))


def test_consumer_example_migrates_its_group_and_rolls_back(address: str, tmp_path: Path) -> None:
    """The group becomes a consumer group and then a classic group again."""
    (block,) = (b for b in blocks() if "parcels-to-sort" in b.text)
    program = block.text.replace("localhost:9092", address)
    program = program.replace("parcels-to-sort", "more-to-sort").replace("sorters", "more-sorters")
    assert run([sys.executable, "-c", program], address, tmp_path) == "classic 1\nconsumer 2\nclassic 1\n"
