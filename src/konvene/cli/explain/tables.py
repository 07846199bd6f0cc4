"""`konvene explain tables`: build the tables that explanations are made from, list and export them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from konvene.cli.explain.damage import note_damage
from konvene.cli.explain.warehouse import (
    Work,
    fetched,
    ingest_and_build,
    logs_argument,
    open_warehouse,
    reporting_failures,
    work_options,
)
from konvene.cli.options import fail, json_option
from konvene.cli.output import Table, note, print_json, print_tables
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.pipeline.warehouse.warehouse import Warehouse


@click.command()
@logs_argument()
@click.option("--files", is_flag=True, help="Also list every file.")
@click.option(
    "--iceberg",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Create or update Iceberg tables in DIR.",
)
@json_option
@work_options
def tables(logs: tuple[str, ...], files: bool, iceberg: Path | None, as_json: bool, work: Work) -> None:
    """Build the tables from the logs, and list them.

    They are Delta tables, which many engines read. Without LOGS, the tables of --warehouse are listed as
    they are.

    \b
    konvene explain tables /var/kafka --warehouse tables
    konvene explain tables --warehouse tables --files
    konvene explain tables --warehouse tables --iceberg lake
    """
    if work.warehouse is None:
        raise click.UsageError("--warehouse DIR is required: it is where the tables are kept.")
    with reporting_failures(logs, audit=work.audit):
        from konvene.pipeline.answers import Gold, Selection

        if not logs and not work.warehouse.is_dir():
            fail(f"there is no warehouse {work.warehouse}", "Name logs to build it from.")
        with open_warehouse(work) as warehouse:
            if logs:
                ingest_and_build(warehouse, fetched(warehouse, logs, work), work)
            found = sorted(warehouse.refresh().files.values(), key=lambda f: (f.table, f.path))
            if iceberg is not None:
                _export(warehouse, iceberg)
            note_damage(Gold(warehouse=warehouse, cluster=work.cluster or None), Selection())
    _print([(f.table, f.path, f.rows, f.bytes) for f in found], str(work.warehouse), files, as_json)


def _export(warehouse: Warehouse, where: Path) -> None:
    from konvene.pipeline.export import ExportError
    from konvene.pipeline.export.iceberg import export

    try:
        exported = export(warehouse, where)
    except ExportError as error:
        fail(str(error))
    added, removed = sum(each.added for each in exported), sum(each.removed for each in exported)
    note(
        f"Iceberg: {counted(len(exported), 'table')} in {where}; {counted(added, 'file')} added, "
        f"{removed:,} removed"
    )


def _print(found: list[tuple[str, str, int, int]], where: str, files: bool, as_json: bool) -> None:
    from konvene.pipeline.tables.table import LAYERS
    from konvene.pipeline.warehouse.read import layer_of

    by_table: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    for each in found:
        by_table[each[0]].append(each)
    layers = {name: layer_of(name) for name in by_table}
    names = sorted(by_table, key=lambda name: (LAYERS.index(layers[name]), name))
    if as_json:
        print_json([
            {
                "table": name, "layer": layers[name], "path": f"{where}/{name}",
                "rows": sum(row[2] for row in by_table[name]),
                "files": [
                    {"path": f"{where}/{path}", "rows": rows, "bytes": size}
                    for _, path, rows, size in by_table[name]
                ],
            }
            for name in names
        ])  # fmt: skip
        return
    rows = [
        (name, layers[name], sum(r[2] for r in by_table[name]), len(by_table[name]),
         sum(r[3] for r in by_table[name]), f"{where}/{name}")
        for name in names
    ]  # fmt: skip
    shown = [Table(("TABLE", "LAYER", "ROWS", "#FILES", "BYTES", "PATH"), rows)]
    if files:
        listed = [(f"{where}/{path}", count, size) for _, path, count, size in found]
        shown.append(Table(("FILE", "ROWS", "BYTES"), listed))
    print_tables(shown)
