"""The `konvene` command line: a broker, and tools for any Kafka cluster or the log files of any Kafka broker.

Options and table columns have the names of Kafka's tools. `--json` prints one JSON document with snake_case
keys instead (`log dump`: one for each record, on a line). Only `serve` starts a broker. A command is imported
when it is called, so that `konvene --help` is fast."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    from konvene.cli.app import konvene

    konvene(prog_name="konvene")
