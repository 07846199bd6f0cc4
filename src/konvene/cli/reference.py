"""The reference page of the commands, rendered from them: `python -m konvene.cli.reference FILE` writes it.

A test compares the page in the repository with what this renders, so that no option changes unseen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

from konvene.cli.app import konvene

__all__ = ["render_reference"]

HEAD = """# Commands

Every command of `konvene` with its arguments and options, as `--help` prints them. Options have the names
that Kafka's tools use. `--bootstrap-server`, or `KONVENE_BOOTSTRAP_SERVER` in the environment, names the
cluster; `--json` prints one JSON document. All commands but `serve`, `sim` and `log` are clients and work
against Apache Kafka as well. `konvene --profile NAME`, or `KONVENE_PROFILE`, takes defaults of options from
[a configuration file](../command-line.md).

This page is rendered from the commands: `python -m konvene.cli.reference docs/reference/cli.md`.
"""


def render_reference() -> str:
    """Return the whole page, ending in a newline."""
    return "\n".join(_page()).rstrip("\n") + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    context = click.Context(konvene, info_name="konvene")
    for name in konvene.list_commands(context):
        command = konvene.get_command(context, name)
        assert command is not None
        yield from _section(command, click.Context(command, context, info_name=name), 2)


def _section(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands one level below."""
    yield f"{'#' * level} {context.command_path}\n"
    summary, _, details = cleandoc(command.help or "").partition("\n\n")
    yield " ".join(summary.split()) + "\n"
    if not isinstance(command, click.Group):
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```text\n{context.command_path} {usage}\n```\n"
    for paragraph in filter(None, details.split("\n\n")):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        else:
            yield " ".join(paragraph.split()) + "\n"
    options = [row for param in command.params if (row := param.get_help_record(context)) is not None]
    if options:
        yield "| Option | Meaning |"
        yield "| --- | --- |"
        for names, meaning in options:
            yield f"| `{_cell(names)}` | {_cell(meaning)} |"
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _section(child, click.Context(child, context, info_name=name), level + 1)


def _cell(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
