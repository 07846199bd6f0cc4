"""What the pages show can be done: marked examples run against a broker in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import Block, blocks

MARKED = [block for block in blocks() if block.mark]
LONGEST_S = 300


def run(command: list[str], address: str, folder: Path) -> str:
    """The output of an example that succeeds; `konvene` is this installation's."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "KONVENE_BOOTSTRAP_SERVER": address},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_examples_of_both_kinds() -> None:
    """A mark that is not understood would pass unseen."""
    assert {block.mark for block in MARKED} == {"sh", "python"}
    assert all(block.mark == block.language for block in MARKED)


@pytest.mark.parametrize("block", [b for b in MARKED if b.mark == "sh"], ids=str)
def test_commands_of_an_example_succeed(block: Block, address: str, tmp_path: Path) -> None:
    """Every line of a shell example ends well, one after another."""
    assert run(["bash", "-euo", "pipefail", "-c", block.text], address, tmp_path)


@pytest.mark.parametrize("block", [b for b in MARKED if b.mark == "python"], ids=str)
def test_program_of_an_example_succeeds(block: Block, address: str, tmp_path: Path) -> None:
    """A Python example runs as it stands, with the broker's address for the usual one."""
    program = block.text.replace("localhost:9092", address)
    assert run([sys.executable, "-c", program], address, tmp_path)


def test_the_client_example_reads_what_it_wrote(address: str, tmp_path: Path) -> None:
    """It prints the offset, the record, and the group, which is there while its member is."""
    (block,) = (b for b in MARKED if "readers-of-letters" in b.text)
    program = block.text.replace("localhost:9092", address).replace('"letters"', '"more-letters"')
    program = program.replace("readers-of-letters", "readers-of-more")
    said = run([sys.executable, "-c", program], address, tmp_path).splitlines()
    assert said[:2] == ["0", "b'ann' b'hello'"]
    assert "readers-of-more" in said[2]


def test_the_transactional_example_commits_what_it_has_read(address: str, tmp_path: Path) -> None:
    """Run twice, it goes on where the first one left the group's offset."""
    (block,) = (b for b in MARKED if "counter-1" in b.text)
    program = block.text.replace("localhost:9092", address)
    for old in ("words", "lengths", "counters", "counter-1"):
        program = program.replace(f'"{old}"', f'"more-{old}"')
    assert run([sys.executable, "-c", program], address, tmp_path) == "more-words-0 2\n"
    again = re.sub(r"(?m)^        for topic in .*\n.*\n", "", program)
    assert run([sys.executable, "-c", again], address, tmp_path) == "more-words-0 4\n"


def test_the_rolling_example_tells_who_is_behind_and_who_is_refused(address: str, tmp_path: Path) -> None:
    """As the page says: the first member works on, the topics of both are there, and there is no way back."""
    (block,) = (b for b in MARKED if "counter-lengths-changelog" in b.text)
    program = block.text.replace("localhost:9092", address)
    program = program.replace("counter", "roller").replace("sentences", "more-sentences")
    said = run([sys.executable, "-c", program], address, tmp_path).splitlines()
    assert re.fullmatch(r"active 0_[01] \| The member's topology epoch 0 is behind .* epoch 1\.", said[0])
    assert said[1] == "['roller-counts-changelog', 'roller-lengths-changelog']"
    assert said[2].startswith("group roller: STREAMS_TOPOLOGY_FENCED: Topology epoch 0 is behind")
    assert len(said) == 3


def test_the_sharing_example_has_the_piano_twice(address: str, tmp_path: Path) -> None:
    """As the page says: what is released comes again, and is accepted then."""
    (block,) = (b for b in MARKED if "couriers" in b.text)
    program = block.text.replace("localhost:9092", address).replace("parcels", "more-parcels")
    said = run([sys.executable, "-c", program.replace("couriers", "more-couriers")], address, tmp_path)
    assert said == "letter 1 accepted\npiano 1 released\npiano 2 accepted\n"
