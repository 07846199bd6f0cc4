"""`konvene log clean`: compact the logs of a data directory without a broker, or show what would be removed.

`--dry-run` takes no lock, writes nothing and may be used while a broker is running. Otherwise no broker may
use the directory. Everything that the broker's cleaner may clean is cleaned, even below
`min.cleanable.dirty.ratio`, which only decides whether cleaning is worthwhile.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables

if TYPE_CHECKING:
    from konvene.broker.storage.offline_cleaner import CleaningResult, CleaningTarget
    from konvene.configs import BrokerConfig

META_NAME = "meta.properties"
COLUMNS = (
    "PARTITION", "DIRTY", "RECORDS", "RECORDS-AFTER", "BYTES", "BYTES-AFTER", "TOMBSTONES-REMOVED",
    "MARKERS-REMOVED", "SEGMENTS", "SEGMENTS-AFTER",
)  # fmt: skip


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:PARTITION]",
    help="Only this topic or partition; may be repeated.",
)  # fmt: skip
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would be removed, without changes; allowed while a broker runs.",
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Properties file of the broker, as for `konvene serve --config`.",
)  # fmt: skip
@click.option(
    "--archive", type=click.Path(file_okay=False), metavar="DIR",
    help="Archive segments of all topics in this directory before they are replaced.",
)  # fmt: skip
@json_option
def clean(
    directory: str,
    topics: tuple[str, ...],
    dry_run: bool,
    config: Path | None,
    archive: str | None,
    as_json: bool,
) -> None:
    """Compact the logs of a data directory: keep the last record of each key.

    DIRECTORY is a data directory of konvene or Apache Kafka. Cleans the inactive segments of compacted topics
    by the rules of the broker's cleaner. The exit code is 1 if a log is damaged or could not be archived.

    \b
    konvene log clean data --dry-run
    konvene log clean data --topic __consumer_offsets:7
    """
    from konvene.broker.storage.offline_cleaner import NotCompacted, OfflineCleaner
    from konvene.configs import ConfigError
    from konvene.log.errors import DirectoryLocked, LogError

    path = os.path.abspath(directory)  # noqa: PTH100 (a path is text here)
    if not os.path.exists(f"{path}/{META_NAME}"):
        raise click.UsageError(f"{directory} is not a data directory: it has no {META_NAME}.")
    only = [_only(each) for each in topics]
    hint = "A broker may have replaced files meanwhile: try again." if dry_run else ""
    found: list[CleaningResult] = []
    progress = Progress(0, beside_output=True)
    try:
        with OfflineCleaner(path, _settings(config), dry_run=dry_run, archive=archive) as cleaning:
            wanted = cleaning.select(only)
            progress.total = _bytes_below(path, [str(of) for of, _ in wanted])
            for of, settings in wanted:
                found.append(cleaning.clean(of, settings, progress.add))
        progress.clear()
    except (NotCompacted, ConfigError) as error:
        raise click.UsageError(f"{error}.") from None
    except DirectoryLocked as error:
        fail(str(error), "Stop the broker, or use --dry-run.")
    except LogError as error:
        fail(str(error), hint)
    except OSError as error:
        fail(f"cannot read {error.filename or path}: {error.strerror or error}", hint)
    shown = [each for each in found if each.bytes or each.damage or only]
    _show(path, shown, dry_run, as_json)
    if any(each.damage or (each.unfinished and not dry_run) for each in found):
        raise click.exceptions.Exit(1)


def _only(text: str) -> CleaningTarget:
    from konvene.broker.storage.offline_cleaner import CleaningTarget

    topic, colon, number = text.rpartition(":")
    if not colon:
        return CleaningTarget(text)
    if re.fullmatch("[0-9]{1,10}", number) is None:
        raise click.UsageError(f"--topic {text}: {number or 'nothing'} is not a partition number.")
    return CleaningTarget(topic, int(number))


def _settings(file: Path | None) -> BrokerConfig:
    from konvene.configs import BrokerConfig, ConfigError

    try:
        return BrokerConfig.load(None if file is None else file.read_text(), file=str(file))[0]
    except ConfigError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot read --config {file}: {error.strerror}")


def _bytes_below(path: str, folders: list[str]) -> int:
    from konvene.log.disk.read_only import ReadOnlyDisk

    disk = ReadOnlyDisk()
    return sum(
        disk.size(f"{path}/{folder}/{name}")
        for folder in folders
        for name in disk.listdir(f"{path}/{folder}")
        if name.endswith(".log")
    )


# output ------------------------------------------------------------------------------------------


def _show(path: str, found: list[CleaningResult], dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"path": path, "dry_run": dry_run, "partitions": [_facts(each) for each in found]})
        return
    if not found:
        note("Nothing to clean: there are no records of compacted topics.")
        return
    rows = [
        (
            str(each.topic_partition), f"{each.dirty:.0%}", each.records, each.records_after, each.bytes,
            each.bytes_after, each.tombstones, each.markers, each.segments, each.segments_after,
        )
        for each in found
    ]  # fmt: skip
    print_tables([Table(COLUMNS, rows, (), [_details(each) for each in found])])
    if dry_run:
        note("Nothing was changed (dry run).")


def _details(each: CleaningResult) -> list[str]:
    if each.damage:
        return [f"not cleaned: {each.damage}"]
    if each.unfinished:
        return [each.unfinished]
    if not each.stats:
        return ["nothing to clean: records are in the active segment, too recent, or clean"]
    return []


def _facts(each: CleaningResult) -> dict[str, object]:
    seen = each.initial
    return {
        "topic": each.topic_partition.topic,
        "partition": each.topic_partition.partition,
        "dirty_ratio": round(each.dirty, 4),
        "first_dirty_offset": None if seen is None else seen.first_dirty_offset,
        "first_uncleanable_offset": None if seen is None else seen.first_uncleanable_offset,
        "cleaned_to": each.stats[-1].end_offset if each.stats else None,
        "records": each.records,
        "records_after": each.records_after,
        "bytes": each.bytes,
        "bytes_after": each.bytes_after,
        "tombstones_removed": each.tombstones,
        "markers_removed": each.markers,
        "records_without_key": sum(stats.invalid_messages_read for stats in each.stats),
        "segments": each.segments,
        "segments_after": each.segments_after,
        "damage": each.damage,
        "left": each.unfinished,
    }
