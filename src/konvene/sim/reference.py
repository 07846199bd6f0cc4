"""Tables of parameters, faults and invariants, for `konvene sim invariants` and for the reference page.

`python -m konvene.sim.reference FILE` writes the page; a test compares the one in the repository with it.
Invariants with a class are described by its docstring; the others, which ledgers, oracles, runtimes and the
liveness phase raise by name, are rows of `ELSEWHERE`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from konvene.sim.invariants import classes_of
from konvene.sim.members import kinds, shares, transacts
from konvene.sim.share.invariants import INVARIANTS as OF_SHARE_STATE
from konvene.sim.transactions.invariants import INVARIANTS as OF_TRANSACTIONS
from konvene.sim.world.faults import ALL_FAULTS, ALL_PARAMETERS

__all__ = ["ELSEWHERE", "invariant_rows", "render_reference"]

Row = tuple[str, str, str]
"""Name of an invariant, the module that checks it, and its description."""

ELSEWHERE: tuple[Row, ...] = (
    ("NothingIsRaised", "run", "ours: no unexpected exception is raised."),
    (
        "ResponsesWaitForDurability",
        "runtime",
        "G6, G12: a response leaves when everything decided before"
        " it is durable, and none is held unless a sync is pending.",
    ),
    (
        "UnavailableCoordinatorsRejectRequests",
        "runtime",
        "L7: a coordinator that loads its log answers"
        " COORDINATOR_LOAD_IN_PROGRESS, and one that lost its shard NOT_COORDINATOR.",
    ),
    ("CoordinatorsServe", "liveness", "L7: without faults the coordinator has loaded its log and answers."),
    (
        "PartitionsAreExclusive",
        "offset_oracle",
        "C3: no two members own a partition in the current generation.",
    ),
    (
        "TasksAreExclusive",
        "offset_oracle",
        "T1, T2: no two members run a task, restored or not, and no two"
        " members of a process have the same task state open.",
    ),
    (
        "CommittedOffsetsNeverRegress",
        "offset_oracle",
        "O2: a fetched offset is not below one that was acknowledged before.",
    ),
    (
        "NoRecordIsSkipped",
        "offset_oracle",
        "O2: no member continues beyond a record that no member has read.",
    ),
    (
        "GroupsBecomeStable",
        "liveness",
        "L3, L4: without faults a group is stable within two rebalance"
        " timeouts, with exactly the live members, and every partition has an owner.",
    ),
    (
        "MembersConverge",
        "liveness",
        "L1: without faults all members of a consumer group reach the new"
        " target within four heartbeats and the assignment interval of a change or an expired session.",
    ),
    (
        "TasksConverge",
        "liveness",
        "L2: without faults all tasks of a streams group run and are restored,"
        " and all standbys have caught up, within four heartbeats and the restore time of a change.",
    ),
    ("EveryRecordIsRead", "liveness", "L6: without faults every record is read and committed."),
    ("StableGroupsStayStable", "liveness", "L5: then three sessions pass without another generation."),
    ("LeftGroupsAreEmpty", "liveness", "G11: a group whose members have all left is empty."),
    (
        "EveryRequestIsAnswered",
        "liveness, runtime",
        "G12: no request is pending once all members have left, or when a coordinator loads its log again.",
    ),
    (
        "TransactionsAreAtomic",
        "ledger",
        "TX1: all records and offsets of a transaction are committed, in every log, or none.",
    ),
    (
        "ExactlyOnce",
        "ledger",
        "TX2: every input record has one committed output record: each transaction"
        " continues where the last one ended.",
    ),
    (
        "MarkersMatchDecisions",
        "ledger",
        "TX1: a marker that ends a transaction has the result that the coordinator decided.",
    ),
    (
        "WritesNeedAnOpenTransaction",
        "ledger",
        "TX5: a transactional write belongs to an open transaction that has its partition.",
    ),
    (
        "CompletedTransactionsAreClosed",
        "ledger",
        "TX6, O3: a transaction that the coordinator completed is"
        " open in no log, and none of its offsets is pending.",
    ),
    (
        "FencedProducersWriteNothing",
        "ledger",
        "TX5: a producer that was replaced by another one of its transactional id writes nothing.",
    ),
    (
        "TransactionsEnd",
        "liveness",
        "TX6: without faults every abandoned transaction ends when its timeout"
        " expires, and is open in no log.",
    ),
    (
        "RecordsAreAcquiredOnce",
        "ledger",
        "SH1, SH2, SH7: no member gets a record that another one has"
        " acquired, or that is acknowledged, given up or not in the log; and only one share partition"
        " delivers records.",
    ),
    (
        "DeliveriesAreCounted",
        "ledger",
        "SH3: the delivery count of a record increases by one with each"
        " delivery, up to the limit of the group.",
    ),
    (
        "InFlightIsBounded",
        "ledger",
        "SH5: a member gets at most as many records as it requested, plus the"
        " rest of a batch; and the number of acquired records is bounded.",
    ),
    ("OnlyOwnersAcknowledge", "ledger", "SH6: only the member that acquired a record may acknowledge it."),
    (
        "AcknowledgementsAreKept",
        "ledger",
        "SH6: a confirmed acknowledgement is final: the record is not"
        " delivered or acknowledged again, and every restart loads it as done.",
    ),
    (
        "StartOffsetsNeverRegress",
        "ledger",
        "SH4: the start offset of a share partition never decreases while it is active.",
    ),
    (
        "NoRecordIsLost",
        "ledger",
        "SH4, SH7: the start offset passes only records that are acknowledged,"
        " given up or deleted from the log.",
    ),
    (
        "AlteredOffsetsAreApplied",
        "ledger",
        "SH7: the first load after an offset was altered begins there"
        " without in-flight records; a confirmed alteration is in the state.",
    ),
    (
        "AbortedRecordsAreNotDelivered",
        "ledger",
        "TX4, SH7: a read_committed group gets no record of an aborted or open transaction.",
    ),
    (
        "DeletedRecordsAreRedundant",
        "runtime",
        "SH10: when the beginning of the log of share state is"
        " deleted, the rest still replays to the current state.",
    ),
    (
        "ShareSessionsAreLimited",
        "node",
        "SH12: the number of share sessions is bounded, and no session is rejected below the limit.",
    ),
    (
        "RemovedMembersOwnNoRecords",
        "ledger",
        "SH12: a member that left, was removed or closed its session has no acquired records.",
    ),
    (
        "LocksExpire",
        "node",
        "SH2, SH8: an expired lock is released, also while a write of its record is pending.",
    ),
    ("DeletedTopicsAreForgotten", "liveness", "SH13: without faults no state of deleted topics remains."),
    ("CompactionChangesNothing", "run", "G2: a compacted log replays to the same state."),
    (
        "ResponsesNeedTheirRights",
        "security_invariants",
        "SE1: no response that grants an operation, and no record, unless the user of the connection has the"
        " right at that moment: from the cache, from the purgatory, or decided.",
    ),
    (
        "RightsAreGranted",
        "security_invariants",
        "SE2: no request is denied whose user had the right from the request to the response.",
    ),
    (
        "ExpiredSessionsGetNoResponse",
        "security_invariants",
        "SE3: a request that arrives after the end of its SASL session is not answered, and no heartbeat is"
        " held beyond the end.",
    ),
    (
        "GroupsSeePermittedTopics",
        "security_invariants",
        "SE4: an assignment has only topics that a user of the group may have described, and an internal"
        " topic is created only while a user of its group may create it.",
    ),
    (
        "SessionsAreRenewedWithTheRight",
        "security_invariants",
        "SE5: a member whose heartbeats are denied, or sent by others without the right, is removed when its"
        " session expires.",
    ),
)


def invariant_rows(wanted: Sequence[str] = ()) -> list[Row]:
    """Return a row for each invariant; with kinds of members in `wanted`, leave out the classes of invariants
    that concern none of them.

    Raises ValueError for an unknown kind."""
    for kind in wanted:
        if kind not in kinds():
            raise ValueError(f"unknown kind {kind}; expected one of {', '.join(kinds())}")
    of_transactions = OF_TRANSACTIONS if not wanted or transacts(wanted) else ()
    of_share_state = OF_SHARE_STATE if not wanted or shares(wanted) else ()
    return [_row(each) for each in (*classes_of(wanted), *of_transactions, *of_share_state)] + list(ELSEWHERE)


def _row(invariant: type) -> Row:
    return invariant.__name__, invariant.__module__.rpartition(".")[2], first_sentence(invariant)


def first_sentence(thing: type) -> str:
    """Return the first paragraph of the docstring of a class, on one line."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0].split())


# --- the page ------------------------------------------------------------------------------------

HEAD = """# Parameters, faults and invariants of the simulator

This page is generated from the tables and docstrings of `konvene.sim`. Change them there and run
`python -m konvene.sim.reference docs/reference/simulator.md`.
[The simulator](../simulator.md) explains how they work together.
"""


def render_reference() -> str:
    """Return the reference page of parameters, faults and invariants as Markdown, ending in a newline."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    yield "## Parameters\n"
    yield "A run draws a value of each parameter from its seed; `--set NAME=VALUE` sets one.\n"
    yield from _table(
        ("Parameter", "Without faults", "Description"),
        ((f"`{p.name}`", f"`{p.fault_free}`", p.description) for p in ALL_PARAMETERS),
    )
    yield "## Faults\n"
    yield "A run draws the set of its faults, and a weight of each, up to that of the table. A fault occurs"
    yield "about every `fault.every` steps. `--set fault.NAME=WEIGHT` sets a weight.\n"
    faults = ((f"`{f.name}`", f"{f.weight:g}", f.description) for f in ALL_FAULTS)
    yield from _table(("Fault", "Weight", "Description"), faults)
    yield "## Invariants\n"
    yield "The letters are those of the project's catalogue of invariants: G log and state machine, C classic"
    yield "groups, ST static members, M consumer groups, MG moves of them, T streams groups, O offsets,"
    yield "L liveness; TX transactions; SH share groups; SE security (level 2).\n"
    invariants = ((f"`{name}`", file, sentence) for name, file, sentence in invariant_rows())
    yield from _table(("Invariant", "Module", "Description"), invariants)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
