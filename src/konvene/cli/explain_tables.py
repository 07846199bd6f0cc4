"""`konvene explain tables`: where the tables are from which answers are made, for who wants to ask more."""

from __future__ import annotations

from collections import defaultdict

import click

from konvene.cli.explain_steps import (
    Work,
    fetched,
    ingest_and_build,
    logs_argument,
    open_warehouse,
    telling_failures,
    work_options,
)
from konvene.cli.options import fail, json_option
from konvene.cli.output import Table, print_json, print_tables


@click.command()
@logs_argument()
@click.option("--files", is_flag=True, help="List each file, too.")
@json_option
@work_options
def tables(logs: tuple[str, ...], files: bool, as_json: bool, work: Work) -> None:
    """Make the tables of the logs, and say where they are.

    They are Parquet files that any engine reads; without LOGS those of a --warehouse are listed as they are.

    \b
    konvene explain tables /var/kafka --warehouse tables
    konvene explain tables --warehouse tables --files
    """
    if work.warehouse is None:
        raise click.UsageError("say with --warehouse DIR where the tables are to be.")
    with telling_failures(logs, audit=work.audit):
        if not logs and not work.warehouse.is_dir():
            fail(f"there is no warehouse {work.warehouse}", "Name logs too, and it is made of them.")
        with open_warehouse(work) as warehouse:
            if logs:
                ingest_and_build(warehouse, fetched(warehouse, logs), work)
            found = sorted(warehouse.refresh().files.values(), key=lambda f: (f.table, f.path))
    _print([(f.table, f.path, f.rows, f.bytes) for f in found], str(work.warehouse), files, as_json)


def _print(found: list[tuple[str, str, int, int]], where: str, files: bool, as_json: bool) -> None:
    by_table: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    for each in found:
        by_table[each[0]].append(each)
    layers = {name: rows[0][1].partition("/")[0] for name, rows in by_table.items()}
    names = sorted(by_table, key=lambda name: (("bronze", "silver", "gold").index(layers[name]), name))
    if as_json:
        print_json([
            {
                "table": name, "layer": layers[name], "path": f"{where}/{layers[name]}/{name}",
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
         sum(r[3] for r in by_table[name]), f"{where}/{layers[name]}/{name}")
        for name in names
    ]  # fmt: skip
    shown = [Table(("TABLE", "LAYER", "ROWS", "#FILES", "BYTES", "PATH"), rows)]
    if files:
        listed = [(f"{where}/{path}", count, size) for _, path, count, size in found]
        shown.append(Table(("FILE", "ROWS", "BYTES"), listed))
    print_tables(shown)
