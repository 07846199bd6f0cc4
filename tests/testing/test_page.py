"""`docs/testing.md` is complete and its examples run; the tests in `docs/share.md` are run here too."""

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
SHARE_PAGE_PROGRAMS = PROGRAM.findall((PAGE.parent / "share.md").read_text("utf-8"))
PROGRAMS = [*PROGRAM.findall(TEXT), *(each for each in SHARE_PAGE_PROGRAMS if "def test_" in each)]

pytest_plugins = ["pytester"]


def table_rows(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this heading."""
    lines = TEXT.partition(f"\n| {heading} |")[2].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_examples_run(pytester: pytest.Pytester, program: str) -> None:
    """Tests pass under pytest without options; other programs exit with 0."""
    file = pytester.makepyfile(program)
    if "def test_" in program:
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
        result.assert_outcomes(passed=program.count("def test_"))
    else:
        assert pytester.run(sys.executable, str(file), timeout=60).ret == 0


def test_every_fault_method_is_documented() -> None:
    """Each public method that creates faults is in the table, with a valid sentence."""
    documented = table_rows("Method of `faults`")
    methods = {
        name
        for name, function in inspect.getmembers(Faults, inspect.isfunction)
        if not name.startswith("_") and "Fault" in str(function.__annotations__["return"])
    }
    assert {row[0].strip("`") for row in documented} == methods - {"run", "for_message", "for_append"}
    for row in documented:
        assert read_sentence(row[1]) is not None


def test_grammar_is_documented() -> None:
    """The page lists all forms, in order."""
    assert TEXT.partition("```text\n")[2].partition("```")[0].splitlines() == list(FORMS)


def test_changed_defaults_are_documented() -> None:
    """The table of settings has all defaults that differ from Kafka's."""
    assert {row[0].strip("`"): row[1] for row in table_rows("Setting")} == DEFAULTS


def test_every_public_name_is_documented() -> None:
    """The table has exactly the public members of `Konvene`, except `running` and `close`."""
    documented = {name for row in table_rows("Member") for name in re.findall(r"`(\w+)", row[0])}
    public = {name for name in vars(Konvene) if not name.startswith("_")} | {"faults", "log", "port"}
    assert documented == public - {"running", "close"}
    words = set(re.findall(r"\w+", TEXT.partition("## Virtual time")[2]))
    virtual = {name for name in vars(VirtualKonvene) if not name.startswith("_")}
    assert virtual - documented - {"close"} <= words
