"""The reference page of the simulator equals the tables of parameters, faults and invariants."""

from __future__ import annotations

import re
from pathlib import Path

from konvene.sim.end_to_end.security_invariants import SECURITY_INVARIANTS
from konvene.sim.reference import ELSEWHERE, invariant_rows, render_reference
from konvene.sim.world.fault_actions import FAULT_ACTIONS
from konvene.sim.world.faults import ALL_FAULTS, ALL_PARAMETERS

ROOT = Path(__file__).parents[2]
SIM = ROOT / "src" / "konvene" / "sim"


def test_page_equals_the_rendered_tables() -> None:
    """`make docs` renders the page."""
    page = ROOT / "docs" / "reference" / "simulator.md"
    assert page.read_text("utf-8") == render_reference()


def test_every_invariant_is_listed() -> None:
    """Invariants without a class in `sim.invariants` are raised by name in other modules of the simulator, or
    are classes of level 2."""
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
    raised |= {invariant.__name__ for invariant in SECURITY_INVARIANTS}
    elsewhere = {name for name, _, _ in ELSEWHERE}
    assert elsewhere <= raised <= {name for name, _, _ in invariant_rows()}


def test_every_row_has_a_unique_name_and_a_description() -> None:
    """Names of invariants are unique; invariants, parameters and faults have descriptions."""
    rows = invariant_rows()
    assert len({name for name, _, _ in rows}) == len(rows) > 25
    for description in [
        *(row[2] for row in rows),
        *(parameter.description for parameter in ALL_PARAMETERS),
        *(fault.description for fault in ALL_FAULTS),
    ]:
        assert len(description) > 10
    assert {fault.name for fault in ALL_FAULTS} == set(FAULT_ACTIONS)
