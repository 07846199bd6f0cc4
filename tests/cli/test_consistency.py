"""Options of the same name have the same syntax and meaning in all commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import click
import pytest
from tests.cli.commands import call

from konvene.cli.app import konvene

DIFFERENT = {
    "--assignor": "one of a simulated group, several of a consumer or a broker",
    "--config": "a file for a broker, as in Kafka; settings of a topic, as in Kafka; else --set",
    "--engine": "only explain chooses one by size",
    "--export": "a switch of reset-offsets, as in Kafka; a file of model-check",
    "--cluster": "a resource of acls, as in Kafka's tool; a name for explain",
    "--group": "repeatable where a command takes several groups",
    "--groups": "model-check takes one type",
    "--members": "a table of groups describe, as in Kafka; a number in sim; a switch of migrate",
    "--out": "a directory of tables, a file of a page",
    "--output": "a format of consume, a file of sim shrink",
    "--owner-principal": "one for a new token, several as a filter",
    "--partitions": "model-check has a limit",
    "--state": "a table of groups describe, as in Kafka; a filter elsewhere",
    "--static": "a number for model-check",
    "--topic": "a name, a pattern, or a name with partitions: as in Kafka's tools",
    "--topology": "a table of groups describe; a file of migrate",
    "--transactional-id": "the producer's setting for produce, the subject of transactions",
    "--type": "groups list takes a list, as Kafka's tool",
}
"""Options that differ in syntax, and why."""

SAME_HELP = (
    "--bootstrap-server", "--command-config", "--timeout", "--seeds", "--jobs", "--warehouse", "--if-exists",
)  # fmt: skip
BEGINNINGS = {"--set": "A broker ", "--json": "Print ", "--execute": "", "--limit": ""}
"""How the help of an option begins in all commands."""


class Used(NamedTuple):
    command: str
    option: click.Option

    @property
    def syntax(self) -> tuple[Any, ...]:
        kind = self.option.type
        choices = tuple(kind.choices) if isinstance(kind, click.Choice) else ()
        return type(kind).__name__, choices, self.option.metavar, self.option.multiple, self.option.is_flag


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


@pytest.fixture(scope="module")
def options() -> dict[str, list[Used]]:
    found: dict[str, list[Used]] = defaultdict(list)
    for path, command in commands(konvene, "konvene"):
        for each in command.params:
            if isinstance(each, click.Option):
                for name in each.opts:
                    found[name].append(Used(path, each))
    return found


def test_options_of_one_name_have_one_syntax(options: dict[str, list[Used]]) -> None:
    differing = {
        name: {use.syntax: use.command for use in uses}
        for name, uses in options.items()
        if len({use.syntax for use in uses}) > 1
    }
    assert differing.keys() - DIFFERENT.keys() == set(), differing
    assert differing.keys() == DIFFERENT.keys(), "an exception is not needed any more"


def test_shared_options_have_one_help(options: dict[str, list[Used]]) -> None:
    for name in SAME_HELP:
        assert len({use.option.help for use in options[name]}) == 1, name
    for name, beginning in BEGINNINGS.items():
        for use in options[name]:
            assert (use.option.help or "").startswith(beginning), use


def test_times_are_in_ms_unless_the_metavar_is_another_unit(options: dict[str, list[Used]]) -> None:
    """Every --timeout and every option whose name ends in -ms takes milliseconds."""
    for name, uses in options.items():
        if ("timeout" in name and name != "--max-transaction-timeout") or name.endswith("-ms"):
            assert {use.option.metavar for use in uses} == {"MS"}, name
        if "interval" in name and not name.endswith("-ms"):
            assert {use.option.metavar for use in uses} == {"SECONDS"}, name


def test_each_subject_is_an_argument_and_an_option(options: dict[str, list[Used]]) -> None:
    """A command whose --group, --topic or --transactional-id is an alternative has the argument, too, and a
    command with such an argument has the option."""
    for path, command in commands(konvene, "konvene"):
        arguments = {
            (each.metavar or "").strip("[].") for each in command.params if isinstance(each, click.Argument)
        }
        for name in ("group", "topic", "transactional-id"):
            uses = [use for use in options[f"--{name}"] if use.command == path]
            if name.upper() in arguments:
                assert uses, f"{path} has no --{name}"
            if any((use.option.help or "").startswith("Alternative") for use in uses):
                assert name.upper() in arguments, f"{path} has no {name.upper()}"


@pytest.mark.parametrize(
    "args, message",
    [
        (["topics", "create"], "Give one TOPIC (or --topic TOPIC)."),
        (["topics", "create", "a", "--topic", "b"], "Give one TOPIC (or --topic TOPIC)."),
        (["topics", "delete"], "Give TOPIC... or --topic REGEX."),
        (["topics", "describe", "a", "--topic", "b"], "Give TOPIC... or --topic REGEX."),
        (["produce"], "Give one TOPIC (or --topic TOPIC)."),
        (["consume"], "Give TOPIC (or --topic TOPIC) or --include REGEX."),
        (["groups", "history"], "Give one GROUP (or --group GROUP)."),
        (["groups", "describe"], "Give GROUP... (or --group GROUP) or --all-groups."),
        (["groups", "describe", "g", "--all-groups"], "Give GROUP... (or --group GROUP) or --all-groups."),
        (["transactions", "describe"], "Give one TRANSACTIONAL-ID (or --transactional-id TRANSACTIONAL-ID)."),
        (["migrate", "check"], "Give GROUP... (or --group GROUP)."),
        (["sim", "what-if", "--seeds", "50"], "50: write 0..49 for 50 seeds."),
    ],
)
def test_missing_and_contradictory_names_are_usage_errors(args: list[str], message: str) -> None:
    result = call(None, *args)
    assert result.code == 2
    assert message in " ".join(result.err.split())
