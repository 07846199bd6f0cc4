"""The command line: `konvene serve`, `groups`, `topics`, `configs`, `produce`, `consume`, `log`, `wire`,
`sim`, `explain`.

Options are named as Kafka's own tools name them and tables have Kafka's columns, so that nobody has to learn
twice; `--json` gives one JSON document with snake_case keys instead (`log dump`: one for each record, on a
line). Each command works against any Kafka cluster, or on any Kafka's files; only `serve` starts something of
ours. A command is imported when it is called: `konvene --help` must not wait for a broker's worth of modules.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The console script. Ends the process: 0 done, 1 failed (and said why), 2 misused, 130 interrupted."""
    from konvene.cli.app import konvene

    konvene(prog_name="konvene")
