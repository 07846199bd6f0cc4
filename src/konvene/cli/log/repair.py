"""`konvene log repair`: truncate damaged logs at the first damage, or show what would be lost.

Changes files only with `--execute`, only while no broker uses the data directory, and keeps all bytes that it
cuts off (see `konvene.log.inspect.repair`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables

if TYPE_CHECKING:
    from konvene.log.disk.files import Lock
    from konvene.log.inspect.repair import RepairPlan


@click.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False))
@click.option("--execute", is_flag=True, help="Truncate the logs; otherwise only show what would be lost.")
@click.option("--dry-run", is_flag=True, help="Change nothing (default).")
@json_option
def repair(path: str, execute: bool, dry_run: bool, as_json: bool) -> None:
    """Truncate damaged logs at the first damage, so that a broker can load them.

    PATH is a partition directory or a data directory. Consumers lose all records from the damage on; their
    bytes are kept next to the log in .cut files, which `konvene log dump` reads. The exit code is 0 if
    nothing is left to repair, else 1.

    \b
    konvene log repair data
    konvene log repair data/orders-0 --execute
    """
    from konvene.log.errors import LogError
    from konvene.log.inspect.dump import NotALog

    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run cannot be used together.")
    lock = None
    path = os.path.abspath(path)  # noqa: PTH100 (a path is text here)
    try:
        if execute:
            lock = _lock(path)
        plans = _plans(path)
        kept = [_execute(each) if execute else [] for each in plans]
    except NotALog as error:
        raise click.UsageError(f"{error}.") from None
    except LogError as error:
        fail(str(error), "Stop the broker first." if execute and not lock else "")
    except OSError as error:
        fail(f"cannot {'repair' if execute else 'read'} {error.filename or path}: {error.strerror or error}")
    finally:
        if lock is not None:
            lock.release()
    _show(path, plans, kept, execute, as_json)
    if plans and not execute:
        raise click.exceptions.Exit(1)


def _lock(path: str) -> Lock | None:
    """Lock the data directory that `path` belongs to; None if it is not in one. Raises `DirectoryLocked` if a
    broker uses it."""
    from konvene.log.disk.files import RealDisk
    from konvene.log.inspect.repair import lock_of

    place = lock_of(RealDisk(), path)
    return None if place is None else RealDisk().lock(place)


def _plans(path: str) -> list[RepairPlan]:
    """Return the repairs that the logs below a path need."""
    from konvene.log.disk.read_only import ReadOnlyDisk
    from konvene.log.inspect.dump import find
    from konvene.log.inspect.repair import durable_offsets, plan

    disk = ReadOnlyDisk()
    durable = durable_offsets(disk, path)
    folders = find(disk, path)
    total = sum(disk.size(f"{folder.path}/{name}") for folder in folders for name in folder.logs)
    progress = Progress(total, beside_output=True)
    plans = []
    for folder in folders:
        what = str(folder)
        report_progress = lambda count, what=what: progress.add(count, what)  # noqa: E731
        plans.append(plan(disk, folder, durable.get(what), report_progress))
    progress.clear()
    return [each for each in plans if each.is_needed]


def _execute(planned: RepairPlan) -> list[str]:
    from konvene.log.disk.files import RealDisk
    from konvene.log.inspect.repair import repair

    return repair(RealDisk(), planned)


# output ------------------------------------------------------------------------------------------


def _show(path: str, plans: list[RepairPlan], kept: list[list[str]], execute: bool, as_json: bool) -> None:
    if as_json:
        rows = [_facts(each, names) for each, names in zip(plans, kept, strict=True)]
        print_json({"path": path, "executed": execute, "repairs": rows})
        return
    if not plans:
        note("Nothing to repair.")
        return
    columns = ("PARTITION", "ENDS-AT", "LOST-OFFSETS", "LOST-BYTES", "SOUND-BATCHES", "SOUND-RECORDS")
    found = [
        (
            str(each.folder), each.end_offset, _range(each.offsets),
            each.bytes, each.lost.batches, each.lost.records,
        )
        for each in plans
    ]  # fmt: skip
    details = [_details(each, names) for each, names in zip(plans, kept, strict=True)]
    print_tables([Table(columns, found, (), details)])
    if not execute:
        note("Nothing was changed. --execute truncates the logs and keeps the bytes in .cut files.")


def _range(offsets: tuple[int, int] | None) -> str | None:
    return None if offsets is None else f"{offsets[0]}..{offsets[1]}"


def _details(planned: RepairPlan, kept: list[str]) -> list[str]:
    if planned.file is None:
        lines = [f"{planned.why}: nothing is cut, the checkpoint is corrected"]
    else:
        lines = [f"{planned.file}, byte {planned.position}: {planned.why}"]
    if planned.later:
        lines.append(f"segments removed as a whole: {', '.join(planned.later)}")
    if kept:
        lines.append(f"kept in {', '.join(kept)}")
    return lines


def _facts(planned: RepairPlan, kept: list[str]) -> dict[str, object]:
    offsets = planned.offsets
    return {
        "topic": planned.folder.topic,
        "partition": planned.folder.partition,
        "path": planned.folder.path,
        "file": planned.file,
        "position": planned.position if planned.file is not None else None,
        "why": planned.why,
        "end_offset": planned.end_offset,
        "first_lost_offset": None if offsets is None else offsets[0],
        "last_lost_offset": None if offsets is None else offsets[1],
        "lost_bytes": planned.bytes,
        "sound_batches": planned.lost.batches,
        "sound_records": planned.lost.records,
        "later_segments": list(planned.later),
        "kept_in": kept,
    }
