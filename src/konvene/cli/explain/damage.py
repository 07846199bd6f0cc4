"""`konvene explain damage`: what of the logs could not be read, and what may be missing because of it.

The other commands print one note for each hole of a log (`note_damage`), and this command has the details.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from konvene.cli.explain.show import with_clusters
from konvene.cli.explain.warehouse import Work, answers_of, logs_argument, require_groups, work_options
from konvene.cli.output import Table, iso, note, print_json_line, print_tables

if TYPE_CHECKING:
    from konvene.pipeline.answers import Gold, Selection
    from konvene.pipeline.answers.damage import Damage

__all__ = ["DamageNotes", "damage", "note_damage"]

MAX_NOTES = 3
MAX_GROUPS = 5


@click.command()
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP",
              help="Only what may concern this group; may be repeated.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each hole, each on a line.")
@work_options
def damage(logs: tuple[str, ...], groups: tuple[str, ...], as_json: bool, work: Work) -> None:
    """Show what of the logs could not be read, and what may be missing because of it.

    Unreadable batches and records are listed, and offsets between others that were found in no log. Records
    that compaction removed, and an incomplete batch at the end of a log, are no damage.

    \b
    konvene explain damage /var/kafka
    konvene explain damage --warehouse tables --group orders-app --json
    """
    with answers_of(logs, work) as gold:
        require_groups(gold, groups)
        found = [each for each in (*gold.damage, *gold.recovered) if each.concerns(groups)]
        if as_json:
            for each in found:
                print_json_line(each.document())
        elif not found:
            click.echo("No damage: all records were read.")
        else:
            print_tables([_table(found)])
            for each in found:
                if each.recovered:
                    note(f"{_where(each)} was read from another copy of the log: none is missing.")


def _table(found: Sequence[Damage]) -> Table:
    heads = (
        "TOPIC", "PARTITION", "OFFSETS", "#BATCHES", "#RECORDS", "BYTES", "REASON", "AFTER (UTC)",
        "BEFORE (UTC)", "#REBALANCES", "#MISSING", "GROUPS",
    )  # fmt: skip
    rows = [
        (
            each.topic, each.partition, _offsets(each), each.batches or None, each.records or None,
            each.bytes or None, ", ".join(each.kinds), _time(each.from_ms), _time(each.until_ms),
            each.rebalances, each.missing, _few(each.groups),
        )
        for each in found
    ]  # fmt: skip
    return with_clusters(Table(heads, rows), [each.cluster for each in found])


def note_damage(gold: Gold, wanted: Selection) -> None:
    """Print a note for each of the first holes that may concern the selected rebalances, if there are any."""
    from konvene.pipeline.answers.damage import sentence

    found = [each for each in gold.damage if each.concerns(wanted.groups, wanted.since_ms)]
    for each in found[:MAX_NOTES]:
        note(sentence(each))
    if found:
        left = len(found) - MAX_NOTES
        more = f"{left:,} more {'place is' if left == 1 else 'places are'} damaged; " if left > 0 else ""
        text = f"{more}konvene explain damage shows the details."
        note(text[0].upper() + text[1:] if more else text)


class DamageNotes:
    """Notes about damage while logs are followed: one for each hole, when it is found.

    The first poll notes what it finds as any other command does."""

    def __init__(self, groups: tuple[str, ...]) -> None:
        self._groups = groups
        self._noted: set[object] | None = None
        self._rows: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"<{len(self._noted or ())} holes noted>"

    def poll(self, gold: Gold) -> None:
        """Print a note for each hole that is new."""
        from konvene.pipeline.answers import Selection
        from konvene.pipeline.answers.damage import sentence

        spans = gold.matching("log_span", columns=["kind"])
        rows = (gold.count("quarantine"), sum(row["kind"] == "missing" for row in spans))
        if rows == self._rows:
            return
        self._rows = rows
        if self._noted is None:
            note_damage(gold, Selection(self._groups))
            self._noted = {each.key for each in gold.damage}
            return
        for each in gold.damage:
            if each.key not in self._noted and each.concerns(self._groups):
                note(sentence(each))
        self._noted |= {each.key for each in gold.damage}


def _where(each: Damage) -> str:
    return f"{each.topic}-{each.partition}, offsets {_offsets(each)}"


def _offsets(each: Damage) -> str:
    last = each.last_offset
    return f"{each.first_offset}-" if last is None else f"{each.first_offset}-{last}"


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def _few(groups: Sequence[str]) -> str:
    more = f", and {len(groups) - MAX_GROUPS} more" if len(groups) > MAX_GROUPS else ""
    return ", ".join(groups[:MAX_GROUPS]) + more
