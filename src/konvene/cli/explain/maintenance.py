"""`konvene explain optimize` and `vacuum`: upkeep of the tables of a warehouse."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from konvene.cli.explain.warehouse import (
    PATIENCE_S,
    PROCESSES_FROM_BYTES,
    progress_bar,
    reporting_failures,
    warehouse_option,
)
from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.pipeline.warehouse.warehouse import Warehouse

_RETENTION = re.compile(r"(\d+)([dh])")
_MAX_DAYS = 7


def _retention(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    match = _RETENTION.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text}: write days or hours, such as 7d or 12h.")
    found = timedelta(**{"days" if match[2] == "d" else "hours": int(match[1])})
    if found > timedelta(days=_MAX_DAYS):
        raise click.BadParameter(f"{text}: the tables name removed files for {_MAX_DAYS} days at most.")
    return found


def _opened(directory: Path | None) -> Warehouse:
    from konvene.pipeline.warehouse.warehouse import Warehouse

    if directory is None:
        raise click.UsageError("--warehouse DIR is required: it is where the tables are kept.")
    if not directory.is_dir():
        fail(f"there is no warehouse {directory}")
    return Warehouse(directory, patience_s=PATIENCE_S)


@click.command()
@warehouse_option
@click.option("--target-size", type=click.IntRange(1), default=128, show_default=True, metavar="MIB",
              help="Size up to which files are merged.")  # fmt: skip
@json_option
def optimize(warehouse: Path | None, target_size: int, as_json: bool) -> None:
    """Merge small files of the tables into larger ones.

    A stream or `follow` leaves some files with each batch. No row changes; the small files stay on disk
    until `vacuum`.

    \b
    konvene explain optimize --warehouse tables
    """
    with reporting_failures():
        from konvene.pipeline.engine import Engine, Local, Processes
        from konvene.pipeline.maintenance.optimize import optimize as merge_files
        from konvene.pipeline.maintenance.optimize import plan

        home = _opened(warehouse)
        target = target_size << 20
        size = sum(task.size for task in plan(home, target))
        engine: Engine = Local() if size < PROCESSES_FROM_BYTES else Processes()
        with progress_bar("merging") as on_progress:
            done = merge_files(home, engine, on_progress, target_bytes=target)
    rows = [(merged.file.table, len(merged.replaced), 1, merged.file.bytes) for merged in done.merged]
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for table, *numbers in rows:
        found[table] = [a + b for a, b in zip(found[table], numbers, strict=True)]
    if as_json:
        names = ("files_before", "files_after", "bytes")
        print_json([{"table": name, **dict(zip(names, found[name], strict=True))} for name in sorted(found)])
    elif not found:
        note("Nothing to merge.")
    else:
        header = ("TABLE", "#FILES-BEFORE", "#FILES-AFTER", "BYTES")
        print_tables([Table(header, [(name, *found[name]) for name in sorted(found)])])


@click.command()
@warehouse_option
@click.option("--retention", callback=_retention, default="7d", show_default=True, metavar="TIME",
              help="Keep files that tables needed within this time: days or hours, such as 12h.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only list the files.")
@json_option
def vacuum(warehouse: Path | None, retention: timedelta, dry_run: bool, as_json: bool) -> None:
    """Delete files that the tables do not need any more.

    These were replaced longer ago than the retention, or are left of a step that failed. Readers that
    opened a table before that may still need them.

    \b
    konvene explain vacuum --warehouse tables --dry-run
    konvene explain vacuum --warehouse tables --retention 1d
    """
    with reporting_failures():
        from konvene.pipeline.maintenance.vacuum import vacuum as delete_unused

        home = _opened(warehouse)
        bar = Progress(0, unit="tables", beside_output=True)

        def show(table: str) -> None:
            bar.total += 1
            bar.add(1, table)

        try:
            deleted = delete_unused(home, retention, dry_run=dry_run, progress=show)
        finally:
            bar.clear()
    if as_json:
        print_json([{"path": f"{warehouse}/{each.path}", "bytes": each.bytes} for each in deleted])
        return
    if dry_run and deleted:
        print_tables(
            [Table(("FILE", "BYTES"), [(f"{warehouse}/{each.path}", each.bytes) for each in deleted])]
        )
    verb = "would be deleted" if dry_run else "deleted"
    note(f"{counted(len(deleted), 'file')} {verb}: {counted(sum(each.bytes for each in deleted), 'byte')}.")
