"""The root command and the table of its commands.

Each command has a row: its name, its module and a line of help. The module is imported when the command is
called, so the table repeats the first line of the command's docstring; a test compares the two.
"""

from __future__ import annotations

from importlib import import_module

import click

from konvene import __version__
from konvene.cli.name_completion import complete_profiles
from konvene.cli.profiles import BadConfig, load_defaults, require_known_keys

COMMANDS = {
    "serve": ("serve", "Run a broker."),
    "console": ("console", "Show a cluster's groups and topics on a live page."),
    "groups": (
        "groups.command",
        "List, describe and delete groups, reset their offsets, and show why they rebalanced.",
    ),
    "topics": ("topics", "List, create, describe, alter and delete topics."),
    "configs": (
        "configs",
        "Describe and alter the settings of topics, brokers, groups, users, clients and IP addresses.",
    ),
    "acls": ("acls", "List, add and remove ACLs."),
    "delegation-tokens": (
        "delegation_tokens",
        "Create, renew, expire and describe delegation tokens.",
    ),
    "produce": ("records.produce", "Write lines from standard input to a topic."),
    "consume": ("records.consume", "Read records from topics and print them."),
    "transactions": ("transactions.command", "List and describe transactions, and abort hanging ones."),
    "log": ("log.command", "Dump, verify, clean and repair the files of a log, of konvene or Apache Kafka."),
    "wire": ("wire", "Convert messages and records between bytes and JSON."),
    "sim": (
        "sim.command",
        "Simulate groups with faults from a seed, replay and shrink violations, and compare settings.",
    ),
    "explain": (
        "explain.command",
        "Explain from logs why groups rebalanced, what it cost, and how to avoid it.",
    ),
    "migrate": (
        "migrate.command",
        "Check whether groups can migrate between the classic, consumer and streams protocols.",
    ),
    "completion": ("completion", "Print the completion script for your shell."),
}
"""Module in this package and help line, by command name."""

COMPLETION = """\b
Defaults of options:
  [defaults] and [profiles.NAME] in ~/.config/konvene/config.toml, or in the file KONVENE_CONFIG

\b
Completion for your shell:
  bash  eval "$(konvene completion bash)"
  zsh   eval "$(konvene completion zsh)"
  fish  konvene completion fish | source
"""


class LateGroup(click.Group):
    """A command group that imports the module of a command only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"konvene.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            known = ", ".join(COMMANDS)
            raise click.UsageError(f"{error.format_message()} Commands: {known}.", ctx) from None
        if name is not None and command is not None:
            try:
                ctx.default_map = {name: self._defaults(ctx, command)}
            except BadConfig:
                if not ctx.resilient_parsing:  # Completion works without defaults.
                    raise
        return name, command, rest

    def _defaults(self, ctx: click.Context, command: click.Command) -> dict[str, object]:
        """Return the defaults of a command's options in the configuration file."""
        defaults = load_defaults(ctx.params.get("profile"))
        require_known_keys(defaults, command, self)
        return defaults.for_command(command, ctx)


@click.command(cls=LateGroup, epilog=COMPLETION, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--profile",
    metavar="NAME",
    envvar="KONVENE_PROFILE",
    show_envvar=True,
    shell_complete=complete_profiles,
    help="Take defaults of options from [profiles.NAME] of ~/.config/konvene/config.toml.",
)
def konvene(**_: object) -> None:
    """Kafka's group coordination in Python: a broker, and tools for any Kafka cluster."""
