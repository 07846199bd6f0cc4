"""The table of planted bugs fits the source, and the harness reads the results of checks.

`python -m tests.mutation` shows whether the bugs are caught; it takes minutes and is not run here.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from tests.mutation.checking import SOURCE, Scope, Verdict, Workspace, read_crash, read_pytest, read_sim
from tests.mutation.mutant import Mutant, RottenRow
from tests.mutation.mutants import INVARIANTS, KNOWN_BUGS, MUTANTS

AT_LEAST = 60
FEW_NEED_A_BROKER = 20


def test_text_of_a_row_is_in_the_source_once_and_the_result_compiles() -> None:
    """A row with outdated text is detected here, before the bugs are checked."""
    text = cache(lambda file: (SOURCE / file).read_text("utf-8"))
    for mutant in MUTANTS:
        planted = mutant.planted(text(mutant.file))
        assert planted != text(mutant.file), mutant.name
        compile(planted, mutant.file, "exec")


def test_row_describes_what_it_breaks() -> None:
    """A row has a sentence, and numbers of the catalogue."""
    for mutant in MUTANTS:
        assert mutant.breaks.endswith("."), mutant.name
        assert len(mutant.breaks) > 30, mutant.name
        assert set(mutant.ids) <= INVARIANTS | KNOWN_BUGS, mutant.name
        assert mutant.level in (1, 2, 3, 4, 5, 6, 7, 8), mutant.name


def test_rows_are_enough_and_distinct() -> None:
    """Names and changes are unique."""
    assert len(MUTANTS) >= AT_LEAST
    assert len({m.name for m in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert sum(m.level == 2 for m in MUTANTS) <= FEW_NEED_A_BROKER


def test_every_known_bug_and_every_kind_of_invariant_has_a_row() -> None:
    """No number is listed for nothing."""
    used = {number for mutant in MUTANTS for number in mutant.ids}
    assert used >= KNOWN_BUGS
    assert {number.rstrip("0123456789") for number in used & INVARIANTS} == {
        "G", "C", "ST", "O", "L", "M", "MG", "T", "TX", "SH", "SE",
    }  # fmt: skip


def test_row_with_outdated_text_is_rejected(tmp_path: Path) -> None:
    """If the text is missing or occurs twice, nothing is written."""
    path = tmp_path / "core.py"
    path.write_text("a = 1\nb = 1\n", "utf-8")
    for old in ("c = 1", "= 1"):
        with pytest.raises(RottenRow):
            Mutant("m", "core.py", (), "Breaks.", old, "").apply(tmp_path)
    assert path.read_text("utf-8") == "a = 1\nb = 1\n"
    assert Mutant("m", "core.py", (), "Breaks.", "b = 1", "b = 2").apply(tmp_path) == "a = 1\nb = 1\n"
    assert path.read_text("utf-8") == "a = 1\nb = 2\n"


def test_bug_is_planted_in_the_copy_during_its_check_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check runs the copy with the bug; the source itself does not change."""
    program = (
        "import sys, konvene.groups.offsets.expiry as e; sys.exit(e.NEXT_BATCH_MS != 10 and 'FAILED tests/t')"
    )
    monkeypatch.setattr("tests.mutation.checking.CHECKS", {"tests": {1: ("-c", program)}})
    old, new = "NEXT_BATCH_MS = 10\n", "NEXT_BATCH_MS = 11\n"
    mutant = Mutant("m", "groups/offsets/expiry.py", (), "Breaks.", old, new)
    space, scope = Workspace(), Scope(check="tests")
    try:
        assert space.clean(scope, 1) > 0
        verdict = space.check(scope, mutant, {1: 60.0})
        assert (verdict.name, verdict.caught, verdict.by) == ("m", True, "t")
        assert space.clean(scope, 1) > 0
    finally:
        space.remove()
    assert not space.path.exists()
    assert "NEXT_BATCH_MS = 10\n" in (SOURCE / mutant.file).read_text("utf-8")


def test_endless_run_counts_as_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that exceeds its time limit is ended, and counts as a hang."""
    monkeypatch.setattr("tests.mutation.checking.CHECKS", {"sim": {1: ("-c", "while True: pass")}})
    space = Workspace()
    try:
        verdict = space.check(Scope(), None, {1: 0.5})
    finally:
        space.remove()
    assert (verdict.caught, verdict.by) == (True, "hang")


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ('{"seed": 3, "step": 77, "invariant": "G1"}\n', ("G1", 3, 77)),
        ('...\n{"runs": [{"seed": 1}, {"seed": 2, "x": {"invariant": "C2", "step": 5}}]}', ("C2", 2, 5)),
        ('{\n  "invariant": "O2",\n  "seed": 0\n}\n', ("O2", 0, None)),
        ('{"violations": [], "invariant": null}\n', None),
        ("no JSON\n", None),
    ],
)  # fmt: skip
def test_the_simulator_is_understood(output: str, found: object) -> None:
    """Invariant, seed and step, wherever in the document they stand."""
    assert read_sim(output) == found


def test_pytest_and_python_are_understood() -> None:
    """The first test that failed; the error that ended it."""
    assert read_pytest("..F\nFAILED tests/groups/test_x.py::test_y - assert\n") == (
        "groups/test_x.py::test_y",
        None,
        None,
    )
    assert read_pytest("3 passed\n") is None
    assert read_crash("Traceback (most recent call last):\n  File\nKeyError: 'g'\n") == (
        "crash: KeyError",
        None,
        None,
    )
    assert read_crash("usage: konvene sim [OPTIONS]\nError: No such command\n") is None


def test_a_verdict_reads_as_a_sentence() -> None:
    """Caught by what and where; or survived."""
    assert str(Verdict("m", True, "G1", 1, 3, 77, 1.25)) == "caught by G1 (level 1, seed 3, step 77), 1.2 s"
    assert str(Verdict("m", False, seconds=9.0)) == "SURVIVED, 9.0 s"
