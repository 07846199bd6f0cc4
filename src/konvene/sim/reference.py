"""What the simulator does and looks at, as rows: for `konvene sim invariants` and for the reference page.

`python -m konvene.sim.reference FILE` writes the page; a test compares the one in the repository with it.
What is promised per event stands in the docstrings of `sim.invariants`; the few invariants that are looked at
elsewhere, by the oracle or in the liveness phase, are rows here.
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
"""An invariant, the file that looks after it, its sentence."""

ELSEWHERE: tuple[Row, ...] = (
    ("NothingIsRaised", "run", "ours: nothing is raised that nobody expected."),
    ("AnswersWaitForTheDisk", "runtime", "G6, G12: an answer leaves when all decided before it is durable,"
     " and nobody's is held while nothing is on its way to the disk."),
    ("WhoLoadsSaysSo", "runtime", "L7: who reads its log says COORDINATOR_LOAD_IN_PROGRESS, who lost it"
     " NOT_COORDINATOR."),
    ("CoordinatorsServe", "liveness", "L7: without faults the coordinator has loaded its log and answers."),
    ("PartitionsAreExclusive", "offset_oracle", "C3: no two members own a partition in the current"
     " generation."),
    ("TasksAreExclusive", "offset_oracle", "T1, T2: no two members run a task, restored or not, and no two"
     " members of a process have the same task state open."),
    ("CommittedOffsetsNeverRegress", "offset_oracle", "O2: a fetched offset is not below one that was"
     " acknowledged before."),
    ("NoRecordIsSkipped", "offset_oracle", "O2: no member continues beyond a record that no member"
     " has read."),
    ("GroupsBecomeStable", "liveness", "L3, L4: without faults a group is stable within two rebalance"
     " timeouts, with exactly the live members, and every partition has an owner."),
    ("MembersConverge", "liveness", "L1: without faults all members of a consumer group reach the new target"
     " within four heartbeats and the assignment interval of a change or an expired session."),
    ("TasksConverge", "liveness", "L2: without faults all tasks of a streams group run and are restored, and"
     " all standbys have caught up, within four heartbeats and the restore time of a change."),
    ("EveryRecordIsRead", "liveness", "L6: without faults every record is read and committed."),
    ("StableGroupsStayStable", "liveness", "L5: then three sessions pass without another generation."),
    ("LeftGroupsAreEmpty", "liveness", "G11: a group whose members have all left is empty."),
    ("EveryRequestIsAnswered", "liveness, runtime", "G12: no request is pending once all members have left,"
     " or when a coordinator loads its log again."),
    ("TransactionsAreWhole", "ledger", "TX1: all that is written in a transaction counts, records and"
     " offsets, in whichever log; or nothing of it."),
    ("ExactlyOnce", "ledger", "TX2: what counts in the output was made of each record once: each transaction"
     " goes on where the last one ended."),
    ("MarkersSayWhatWasDecided", "ledger", "TX1: a marker that ends something says what the coordinator's log"
     " says."),
    ("NothingIsWrittenOutside", "ledger", "TX5: what is written in a transaction stands in one that is open,"
     " with that partition in it."),
    ("NothingStaysOpen", "ledger", "TX6, O3: what the coordinator calls complete is open in no log, and no"
     " offset of it is pending."),
    ("ZombiesWriteNothing", "ledger", "TX5: who was followed by another one of the same transactional id"
     " writes nothing."),
    ("TransactionsEnd", "liveness", "TX6: without faults every transaction that was left open ends when its"
     " time is up, and is open in no log."),
    ("RecordsAreHeldOnce", "ledger", "SH1, SH2, SH7: nobody gets a record that another one has, or that is"
     " acknowledged, given up, or not of the log; and only one share partition gives out records."),
    ("DeliveriesAreCounted", "ledger", "SH3: each delivery of a record counts one more than the last one that"
     " is known, and not more than the group's limit."),
    ("InFlightIsBounded", "ledger", "SH5: nobody gets more than was asked for, but for the rest of a batch;"
     " and not more are held than may be."),
    ("OnlyHoldersAcknowledge", "ledger", "SH6: who has a record may say what became of it, and nobody else."),
    ("AcknowledgedStays", "ledger", "SH6: what was acknowledged and answered is never delivered again, is not"
     " acknowledged twice, and is so in whatever is loaded after a restart."),
    ("TheStartNeverGoesBack", "ledger", "SH4: the start of a share partition never goes back while it is"
     " served."),
    ("NothingIsLost", "ledger", "SH4, SH7: the start passes over nothing but what is acknowledged, given up,"
     " or gone from the log."),
    ("AlteredOffsetsHold", "ledger", "SH7: whoever is loaded first after an offset was altered begins there,"
     " and knows of nothing before; and who is answered that it is altered finds it so."),
    ("AbortedIsForNobody", "ledger", "TX4, SH7: in a group that reads what is committed nobody gets a record"
     " that was aborted, or whose transaction is open."),
    ("WhatIsCutIsSuperfluous", "runtime", "SH10: when the beginning of the log of share state is cut off, the"
     " rest says all that is known."),
    ("ShareSessionsAreLimited", "node", "SH12: there are not more share sessions than may be, and nobody is"
     " turned away while there is room."),
    ("MembersThatAreGoneHoldNothing", "ledger", "SH12: who left, was put out or closed its session has"
     " nothing any more."),
    ("LocksEnd", "node", "SH2, SH8: a lock whose time is over is taken off, whatever is being written."),
    ("DeletedTopicsAreForgotten", "liveness", "SH13: in the end nothing is known of topics that are gone."),
    ("CompactionChangesNothing", "run", "G2: whatever compaction leaves of the log, it says the same."),
)  # fmt: skip


def invariant_rows(wanted: Sequence[str] = ()) -> list[Row]:
    """All invariants, or those for these kinds of groups. Raises ValueError for a kind that there is not."""
    for kind in wanted:
        if kind not in kinds():
            raise ValueError(f"there are no groups of the kind {kind}; there are {', '.join(kinds())}")
    of_transactions = OF_TRANSACTIONS if not wanted or transacts(wanted) else ()
    of_share_state = OF_SHARE_STATE if not wanted or shares(wanted) else ()
    return [_row(each) for each in (*classes_of(wanted), *of_transactions, *of_share_state)] + list(ELSEWHERE)


def _row(invariant: type) -> Row:
    return invariant.__name__, invariant.__module__.rpartition(".")[2], first_sentence(invariant)


def first_sentence(thing: type) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0].split())


# --- the page ------------------------------------------------------------------------------------

HEAD = """# Knobs, faults and invariants

What a run draws from its seed, what strikes now and then, and what is looked at; rendered from the tables and
docstrings of `konvene.sim`. Change it there and run
`python -m konvene.sim.reference docs/reference/simulator.md`.
What they mean together is told in [the simulator](../simulator.md).
"""


def render_reference() -> str:
    """The whole page, ending in a newline."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    yield "## Knobs\n"
    yield "A run draws a value for each; `--set NAME=VALUE` sets one. The second column: without faults.\n"
    yield from _table(
        ("Knob", "Calm", "What it is"),
        ((f"`{k.name}`", f"`{k.fault_free}`", k.description) for k in ALL_PARAMETERS),
    )
    yield "## Faults\n"
    yield "A run draws which of them there are. Of those, one strikes every `fault.every` steps or so; by"
    yield "weight, which is drawn below the one here. `--set fault.NAME=WEIGHT` sets it by hand.\n"
    faults = ((f"`{f.name}`", f"{f.weight:g}", f.description) for f in ALL_FAULTS)
    yield from _table(("Fault", "Weight", "What happens"), faults)
    yield "## Invariants\n"
    yield "The letters are those of the project's catalogue of invariants: G log and state machine, C classic"
    yield "groups, ST static members, M consumer groups, MG moves of them, T streams groups, O offsets,"
    yield "L liveness; TX transactions; SH share groups.\n"
    invariants = ((f"`{name}`", file, sentence) for name, file, sentence in invariant_rows())
    yield from _table(("Invariant", "Looked after in", "What holds"), invariants)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
