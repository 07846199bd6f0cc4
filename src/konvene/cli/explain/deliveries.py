"""`konvene explain deliveries`: what became of the records of share groups, and what is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from konvene.cli.explain.warehouse import Work, answers_of, logs_argument, work_options
from konvene.cli.options import fail
from konvene.cli.output import Table, iso, note, print_json_line, print_tables, text_of
from konvene.groups.history import duration

if TYPE_CHECKING:
    from konvene.pipeline.answers.deliveries import Delivery

MOST_SHOWN = 20
MOST_MINUTES = 5


@click.command()
@logs_argument()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group. Repeatable.")
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help="Show so many share partitions, those in trouble first "
              "[default: 20; with --json all].")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each share partition, each on a line."
)
@work_options
def deliveries(
    logs: tuple[str, ...], groups: tuple[str, ...], limit: int | None, as_json: bool, work: Work
) -> None:
    """Tell what became of the records of share groups: delivered again, given up, stuck.

    LOGS need the logs of __share_group_state; topics have their names where those of __consumer_offsets are
    among them.

    \b
    konvene explain deliveries /var/kafka --group workers
    konvene explain deliveries localhost:9092 --json
    """
    with answers_of(logs, work) as gold:
        from konvene.pipeline.answers.deliveries import deliveries as found_in
        from konvene.pipeline.answers.deliveries import document, minutes, told

        for group in groups:
            if group not in gold.groups:
                near = gold.near(group)
                fail(f"nothing is known of a group {group}", f"Is it {' or '.join(near)}?" if near else "")
        found = found_in(gold, groups)
        if as_json:
            for each in found[:limit]:
                print_json_line(document(each))
            return
        if not found:
            fail("no share group delivered records, as far as these logs tell",
                 "Is __share_group_state among them?")  # fmt: skip
        shown = found[: limit or MOST_SHOWN]
        worst = minutes(gold, groups)
        print_tables([_partitions(shown), *([_minutes(worst[:MOST_MINUTES])] if worst else [])])
        _trouble(shown, told)
        if len(found) > len(shown):
            note(f"{len(found) - len(shown):,} more are not shown; --limit {len(found)} shows all.")
        if any(each.row["evidence"] != "observed" for each in shown):
            note("Part of the log is gone: of those marked * the figures are of what is left.")


def _partitions(found: list[Delivery]) -> Table:
    heads = (
        "GROUP", "TOPIC", "PARTITION", "START", "DELIVERED", "AGAIN", "ACCEPTED", "RELEASED", "ARCHIVED",
        "IN-FLIGHT", "UNTOLD", "STOOD-FOR",
    )  # fmt: skip
    return Table(heads, [_partition(each) for each in found])


def _partition(each: Delivery) -> tuple[Any, ...]:
    row = each.row
    there = row["deleted_ms"] is None and row["start_offset"] >= 0
    return (
        row["group_id"] + ("" if row["evidence"] == "observed" else " *"), row["topic"], row["partition"],
        row["start_offset"] if there else None, row["delivered"], row["redelivered"], row["acknowledged"],
        row["released"], row["archived"], row["in_flight"], row["untold"],
        duration(each.stood_ms) if row["in_flight"] or row["untold"] else None,
    )  # fmt: skip


def _minutes(worst: list[dict[str, Any]]) -> Table:
    heads = ("MINUTE (UTC)", "GROUP", "TOPIC", "PARTITION", "DELIVERED", "AGAIN", "ARCHIVED", "START")
    rows = [
        (
            (iso(row["minute_ms"]) or "")[:16], row["group_id"], row["topic"], row["partition"],
            row["delivered"], row["redelivered"], row["archived"], row["start_offset"],
        )
        for row in worst
    ]  # fmt: skip
    return Table(heads, rows)


def _trouble(shown: list[Delivery], told: Any) -> None:
    lines = [f"{each.row['group_id']}, {each.name}: {text}." for each in shown for text in told(each)]
    if lines:
        click.echo()
    for line in lines[:MOST_SHOWN]:
        click.echo(text_of(line))
