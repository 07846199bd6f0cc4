"""The root command and the table of its commands.

A command is a row: its name, its file, a line of help. The file is imported when the command is called (or
asked for its own help), so the table repeats the line that the command's docstring begins with; a test holds
the two together.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from konvene import __version__

COMMANDS = {
    "serve": ("serve", "Run a broker."),
    "groups": (
        "groups.command",
        "List, describe and delete groups, move their offsets, and tell why they rebalanced.",
    ),
    "topics": ("topics", "List, create, describe, alter and delete topics."),
    "configs": ("configs", "Describe and alter the settings of topics, brokers and groups."),
    "produce": ("produce", "Write lines from standard input to a topic."),
    "consume": ("consume", "Read records from topics and print them."),
    "transactions": ("transactions.command", "List and describe transactions, and end those that hang."),
    "log": ("log.command", "Show, verify, clean and repair the files of a log, ours or Apache Kafka's."),
    "wire": ("wire", "Turn messages and records from bytes into JSON and back."),
    "sim": (
        "sim.command",
        "Run groups under faults from a seed, replay and shrink what went wrong, and try settings out.",
    ),
    "explain": (
        "explain.command",
        "Tell from logs why groups rebalanced, what it cost, and what would help.",
    ),
    "migrate": (
        "migrate.command",
        "Rehearse how groups change between the classic, the consumer and the streams protocol.",
    ),
    "completion": ("completion", "Print the script that completes commands in your shell."),
}
"""Name, file in this folder, and what `konvene --help` says."""

COMPLETION = """\b
Completion for your shell:
  bash  eval "$(konvene completion bash)"
  zsh   eval "$(konvene completion zsh)"
  fish  konvene completion fish | source
"""


class LateGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"konvene.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            known = ", ".join(COMMANDS)
            raise click.UsageError(f"{error.format_message()} Commands: {known}.", ctx) from None


@click.command(cls=LateGroup, epilog=COMPLETION, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def konvene(**_: Any) -> None:
    """Kafka's group coordination, whole, in Python: a broker, and tools for any Kafka cluster."""
