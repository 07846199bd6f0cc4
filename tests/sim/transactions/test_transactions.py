"""Runs with transactions are deterministic, reach every error and fault, and detect planted bugs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.hash_seeds import outputs_of_processes

from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate
from konvene.sim.transactions.ledger import Output
from konvene.sim.transactions.node import Transactions
from konvene.sim.transactions.producer import Producer
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.faults import TRANSACTION_FAULTS, TRANSACTION_PARAMETERS, Options
from konvene.transactions.shard import TransactionShard

KINDS = ("transactional", "transactional-consumer")


def traced(seed: int) -> str:
    """Return a hash of all trace lines of a run."""
    lines: list[str] = []
    with quiet():
        simulate(Run(seed, KINDS[:1], 1_500), trace=lines.append)
    assert len(lines) > 500
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """G10: the trace is equal under every hash seed."""
    module = "tests.sim.transactions.test_transactions"
    code = f"from {module} import traced; print([traced(seed) for seed in (3, 4)])"
    assert outputs_of_processes(code, 1, 77) == {f"{[traced(3), traced(4)]}\n"}


def test_options_of_transactions_are_drawn_last() -> None:
    """A transactional run draws the same other options as a classic one."""
    names = {parameter.name for parameter in TRANSACTION_PARAMETERS} | {
        f"fault.{f.name}" for f in TRANSACTION_FAULTS
    }
    for seed in range(20):
        plain, transactional = (Run(seed, (kind,)).options().lines() for kind in ("classic", "transactional"))
        assert [line for line in transactional if line.partition("=")[0] not in names] == plain


REACHED = {
    "InitProducerId NONE", "InitProducerId CONCURRENT_TRANSACTIONS", "InitProducerId PRODUCER_FENCED",
    "EndTxn NONE", "EndTxn CONCURRENT_TRANSACTIONS", "EndTxn PRODUCER_FENCED",
    "AddOffsetsToTxn NONE", "AddOffsetsToTxn CONCURRENT_TRANSACTIONS", "AddPartitionsToTxn NONE",
    "TxnOffsetCommit NONE", "TxnOffsetCommit ILLEGAL_GENERATION", "TxnOffsetCommit UNKNOWN_MEMBER_ID",
    "Ending NONE", "fault transactions_fail_over", "fault node_dies",
    "transactions loaded", "transactions timer", "transactions completion", "transactions append failed",
}  # fmt: skip


@pytest.mark.deep
def test_every_fault_and_every_error_is_reached() -> None:
    """L8: an invariant is checked only if some seed reaches its states."""
    counts: Counter[str] = Counter()
    with quiet():
        for seed in range(12):
            for kind in KINDS:
                counts.update(simulate(Run(seed, (kind,), 3_000)).counts)
    assert set(counts) >= REACHED, sorted(REACHED - set(counts))


def test_without_faults_every_record_is_committed_once() -> None:
    """A read_committed reader gets the output of every input record, in order."""
    nodes: list[Transactions] = []
    start = Transactions.start

    def recording_start(self: Transactions) -> Any:
        nodes.append(self)
        return start(self)

    without_faults = [
        (name, value) for name, value in (line.split("=") for line in Options.without_faults().lines())
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transactions, "start", recording_start)
        patch.setattr(Run, "options", lambda self: Options.without_faults().with_set(without_faults))
        report = simulate(Run(1, ("transactional",), 2_000))
    assert report.violation is None
    (node,) = nodes
    ledger = node.ledger
    assert ledger.committed > 50
    next_offsets: dict[Any, int] = {}
    for log in node.logs.values():
        for batch in log.batches:
            for output in map(Output.read, batch.values):
                if ledger.results.get(output.label, (False,))[0]:
                    assert output.begin == next_offsets.get(output.key, 0)
                    next_offsets[output.key] = output.end
    assert sum(next_offsets.values()) > 1_000


# --- planted bugs ----------------------------------------------------------------------------------


def violations(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, bug: Callable[..., Any]) -> set[str]:
    """Return the invariant that the first violating seed violates with this bug."""
    monkeypatch.setattr(owner, name, bug)
    broken: set[str] = set()
    with quiet():
        for seed in range(25):
            report = simulate(Run(seed, ("transactional",), 3_000))
            if report.violation is not None:
                broken.add(report.violation.invariant)
                break
    return broken


def test_unverified_write_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without verification a late write opens a transaction that never ends."""
    monkeypatch.setattr(TransactionShard, "is_enlisted", lambda self, *writer: True)

    def unverified(self: Any, writer: Any, place: Any, *, adds: bool, then: Any) -> None:
        from konvene.errors import Errors

        then(Errors.NONE)

    assert violations(monkeypatch, Transactions, "_verify_partition", unverified) == {
        "WritesNeedAnOpenTransaction"
    }


def test_client_that_continues_after_an_abort_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger finds the records whose output was aborted."""
    from konvene.sim.members.transactional import TransactionalMember

    transaction_ended = TransactionalMember._transaction_ended

    def forgetful(self: Any, ranges: Any, ages: Any, error: Any) -> None:
        from konvene.errors import Errors

        transaction_ended(self, ranges, ages, Errors.NONE)

    names = violations(monkeypatch, TransactionalMember, "_transaction_ended", forgetful)
    assert names <= {"ExactlyOnce", "CommittedOffsetsNeverRegress", "NoRecordIsSkipped"}
    assert names


def test_violation_is_an_exception_with_a_name() -> None:
    """Violations of transaction invariants are raised like all others."""
    assert issubclass(InvariantViolation, Exception)
    assert Producer.begin.__doc__
