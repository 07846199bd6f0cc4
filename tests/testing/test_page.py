"""What `docs/testing.md` shows can be done, and nothing that can be done is missing in it.

Tests that `docs/share.md` shows are run here as well."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from konvene.testing import Konvene, VirtualKonvene
from konvene.testing.faults import Faults
from konvene.testing.node import DEFAULTS
from konvene.testing.script import FORMS, read_sentence

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
TEXT = PAGE.read_text("utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHARING = PROGRAM.findall((PAGE.parent / "share.md").read_text("utf-8"))
PROGRAMS = [*PROGRAM.findall(TEXT), *(each for each in SHARING if "def test_" in each)]

pytest_plugins = ["pytester"]


def rows(head: str) -> list[list[str]]:
    """The cells of the table whose first row begins so."""
    lines = TEXT.partition(f"\n| {head} |")[2].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_run_as_they_stand(pytester: pytest.Pytester, program: str) -> None:
    """Tests pass under pytest with nothing else said; programs end well."""
    file = pytester.makepyfile(program)
    if "def test_" in program:
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
        result.assert_outcomes(passed=program.count("def test_"))
    else:
        assert pytester.run(sys.executable, str(file), timeout=60).ret == 0


def test_every_fault_has_its_row() -> None:
    """Each public method that makes faults is in the table, with a sentence that can be read."""
    told = rows("Method of `faults`")
    made = {
        name
        for name, function in inspect.getmembers(Faults, inspect.isfunction)
        if not name.startswith("_") and "Fault" in str(function.__annotations__["return"])
    }
    assert {row[0].strip("`") for row in told} == made - {"run", "for_message", "for_append"}
    for row in told:
        assert read_sentence(row[1]) is not None


def test_the_grammar_is_the_pages() -> None:
    """Form by form."""
    assert TEXT.partition("```text\n")[2].partition("```")[0].splitlines() == list(FORMS)


def test_the_defaults_are_the_pages() -> None:
    """What differs from Kafka's defaults is told."""
    assert {row[0].strip("`"): row[1] for row in rows("Setting")} == DEFAULTS


def test_every_public_name_is_told() -> None:
    """Nothing of `Konvene` is left out but its plumbing, nothing is made up."""
    told = {name for row in rows("Member") for name in re.findall(r"`(\w+)", row[0])}
    public = {name for name in vars(Konvene) if not name.startswith("_")} | {"faults", "log", "port"}
    assert told == public - {"running", "close"}
    words = set(re.findall(r"\w+", TEXT.partition("## Virtual time")[2]))
    virtual = {name for name in vars(VirtualKonvene) if not name.startswith("_")}
    assert virtual - told - {"close"} <= words
