"""The page of parameters, faults and invariants is rendered from the tables and compared."""

from __future__ import annotations

import re
from pathlib import Path

from konvene.sim.reference import ELSEWHERE, invariant_rows, render_reference
from konvene.sim.world.fault_actions import FAULT_ACTIONS
from konvene.sim.world.faults import ALL_FAULTS, ALL_PARAMETERS

ROOT = Path(__file__).parents[2]
SIM = ROOT / "src" / "konvene" / "sim"


def test_the_page_is_what_the_tables_render() -> None:
    """`make docs` writes it."""
    page = ROOT / "docs" / "reference" / "simulator.md"
    assert page.read_text("utf-8") == render_reference()


def test_every_invariant_is_listed() -> None:
    """Those that no class of `sim.invariants` looks after are raised by name somewhere in the first level."""
    raised = set()
    for name in ("invariants/liveness", "invariants/offset_oracle", "runs/run", "runtime", "group_runtime",
                 "world/world", "share/runtime",
                 "transactions/ledger", "transactions/runtime", "share/ledger", "share/node"):  # fmt: skip
        text = (SIM / f"{name}.py").read_text("utf-8")
        raised |= set(
            re.findall(
                r'(?:InvariantViolation\(|_violate\(|_violation\(world, run, |, |^ +)"([A-Z][a-z]+[A-Z]\w+)"',
                text,
                re.M,
            )
        )
    elsewhere = {name for name, _, _ in ELSEWHERE}
    assert elsewhere <= raised <= {name for name, _, _ in invariant_rows()}


def test_every_row_has_its_sentence() -> None:
    """No name comes twice, and none is without a word."""
    rows = invariant_rows()
    assert len({name for name, _, _ in rows}) == len(rows) > 25
    for sentence in [
        *(row[2] for row in rows),
        *(parameter.description for parameter in ALL_PARAMETERS),
        *(fault.description for fault in ALL_FAULTS),
    ]:
        assert len(sentence) > 10
    assert {fault.name for fault in ALL_FAULTS} == set(FAULT_ACTIONS)
