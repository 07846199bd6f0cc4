"""Runs with transactions are the same every time, reach what there is to reach, and find what is wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.hash_seeds import told_by_processes

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
    """A hash of everything that happened."""
    lines: list[str] = []
    with quiet():
        simulate(Run(seed, KINDS[:1], 1_500), trace=lines.append)
    assert len(lines) > 500
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_the_same_seed_is_the_same_run_in_any_process() -> None:
    """G10: byte for byte, whatever order the sets of a process have."""
    module = "tests.sim.transactions.test_transactions"
    code = f"from {module} import traced; print([traced(seed) for seed in (3, 4)])"
    assert told_by_processes(code, 1, 77) == {f"{[traced(3), traced(4)]}\n"}


def test_what_other_members_draw_is_as_it_was() -> None:
    """What is drawn for transactions is drawn behind all else."""
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
def test_every_fault_strikes_and_every_answer_is_reached() -> None:
    """L8: invariants of a state means little if no seed reaches it."""
    counts: Counter[str] = Counter()
    with quiet():
        for seed in range(12):
            for kind in KINDS:
                counts.update(simulate(Run(seed, (kind,), 3_000)).counts)
    assert set(counts) >= REACHED, sorted(REACHED - set(counts))


def test_where_nothing_goes_wrong_every_record_comes_once() -> None:
    """And whoever reads what was committed is told all of it, in its order."""
    kept: list[Transactions] = []
    told = Transactions.begin

    def begin(self: Transactions) -> Any:
        kept.append(self)
        return told(self)

    calm = [(name, value) for name, value in (line.split("=") for line in Options.without_faults().lines())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transactions, "begin", begin)
        patch.setattr(Run, "options", lambda self: Options.without_faults().with_set(calm))
        report = simulate(Run(1, ("transactional",), 2_000))
    assert report.violation is None
    ledger, (node,) = kept[0].ledger, kept
    assert ledger.committed > 50
    upto: dict[Any, int] = {}
    for log in node.logs.values():
        for batch in log.batches:
            for output in map(Output.read, batch.values):
                if ledger.fates.get(output.label, (False,))[0]:
                    assert output.begin == upto.get(output.key, 0)
                    upto[output.key] = output.end
    assert sum(upto.values()) > 1_000


# --- invariants can be broken ------------------------------------------------------------------------


def found(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Callable[..., Any]) -> set[str]:
    """Which invariants are broken by this among some seeds."""
    monkeypatch.setattr(owner, name, wrong)
    broken: set[str] = set()
    with quiet():
        for seed in range(25):
            report = simulate(Run(seed, ("transactional",), 3_000))
            if report.violation is not None:
                broken.add(report.violation.invariant)
                break
    return broken


def test_a_write_that_nobody_lets_in_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is verified a late write stays open for ever."""
    monkeypatch.setattr(TransactionShard, "is_enlisted", lambda self, *who: True)

    def unverified(self: Any, writer: Any, place: Any, *, adds: bool, then: Any) -> None:
        from konvene.errors import Errors

        then(Errors.NONE)

    assert found(monkeypatch, Transactions, "_enlisted", unverified) == {"NothingIsWrittenOutside"}


def test_a_client_that_reads_on_after_an_abort_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger knows that nothing counts which was read between."""
    from konvene.sim.members.transactional import TransactionalMember

    over = TransactionalMember._transaction_ended

    def forgetful(self: Any, ranges: Any, ages: Any, error: Any) -> None:
        from konvene.errors import Errors

        over(self, ranges, ages, Errors.NONE)

    names = found(monkeypatch, TransactionalMember, "_transaction_ended", forgetful)
    assert names <= {"ExactlyOnce", "CommittedOffsetsNeverRegress", "NoRecordIsSkipped"}
    assert names


def test_a_violated_invariant_of_transactions_is_named() -> None:
    """It is raised by name, as every other is."""
    assert issubclass(InvariantViolation, Exception)
    assert Producer.begin.__doc__
