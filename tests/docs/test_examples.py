"""Run the marked examples of the pages against a broker process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import Block, blocks

MARKED = [block for block in blocks() if block.mark]
TIMEOUT_S = 300


def run(command: list[str], address: str, folder: Path) -> str:
    """Run an example with this installation's `konvene`, assert that it succeeds, and return its output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    completed = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "KONVENE_BOOTSTRAP_SERVER": address},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_marked_examples_are_shell_and_python() -> None:
    """Only these marks are run: an unknown mark would silently skip its example."""
    assert {block.mark for block in MARKED} == {"sh", "python"}
    assert all(block.mark == block.language for block in MARKED)


@pytest.mark.parametrize("block", [b for b in MARKED if b.mark == "sh"], ids=str)
def test_commands_of_an_example_succeed(block: Block, address: str, tmp_path: Path) -> None:
    """Every command of a shell example exits with status 0."""
    assert run(["bash", "-euo", "pipefail", "-c", block.text], address, tmp_path)


@pytest.mark.parametrize("block", [b for b in MARKED if b.mark == "python"], ids=str)
def test_program_of_an_example_succeeds(block: Block, address: str, tmp_path: Path) -> None:
    """A Python example runs unchanged, except for the broker's address."""
    program = block.text.replace("localhost:9092", address)
    assert run([sys.executable, "-c", program], address, tmp_path)


def test_client_example_reads_the_record_that_it_wrote(address: str, tmp_path: Path) -> None:
    """It prints the offset, the record, and the group that exists while its member is connected."""
    (block,) = (b for b in MARKED if "readers-of-letters" in b.text)
    program = block.text.replace("localhost:9092", address).replace('"letters"', '"more-letters"')
    program = program.replace("readers-of-letters", "readers-of-more")
    output = run([sys.executable, "-c", program], address, tmp_path).splitlines()
    assert output[:2] == ["0", "b'ann' b'hello'"]
    assert "readers-of-more" in output[2]


def test_transactional_example_commits_consumed_offsets(address: str, tmp_path: Path) -> None:
    """A second run continues at the group offset that the first run committed."""
    (block,) = (b for b in MARKED if "counter-1" in b.text)
    program = block.text.replace("localhost:9092", address)
    for old in ("words", "lengths", "counters", "counter-1"):
        program = program.replace(f'"{old}"', f'"more-{old}"')
    assert run([sys.executable, "-c", program], address, tmp_path) == "more-words-0 2\n"
    again = re.sub(r"(?m)^        for topic in .*\n.*\n", "", program)
    assert run([sys.executable, "-c", again], address, tmp_path) == "more-words-0 4\n"


def test_rolling_upgrade_example_reports_stale_and_fenced_topologies(address: str, tmp_path: Path) -> None:
    """The first member stays active, both versions' changelog topics exist, and a downgrade is fenced."""
    (block,) = (b for b in MARKED if "counter-lengths-changelog" in b.text)
    program = block.text.replace("localhost:9092", address)
    program = program.replace("counter", "roller").replace("sentences", "more-sentences")
    output = run([sys.executable, "-c", program], address, tmp_path).splitlines()
    assert re.fullmatch(r"active 0_[01] \| The member's topology epoch 0 is behind .* epoch 1\.", output[0])
    assert output[1] == "['roller-counts-changelog', 'roller-lengths-changelog']"
    assert output[2].startswith("group roller: STREAMS_TOPOLOGY_FENCED: Topology epoch 0 is behind")
    assert len(output) == 3


def test_share_group_example_redelivers_a_released_record(address: str, tmp_path: Path) -> None:
    """The released record is delivered a second time and accepted."""
    (block,) = (b for b in MARKED if "couriers" in b.text)
    program = block.text.replace("localhost:9092", address).replace("parcels", "more-parcels")
    output = run([sys.executable, "-c", program.replace("couriers", "more-couriers")], address, tmp_path)
    assert output == "letter 1 accepted\npiano 1 released\npiano 2 accepted\n"
