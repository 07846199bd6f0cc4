"""The reference page of the commands equals the generated text."""

from __future__ import annotations

from pathlib import Path

import click

from konvene.cli.app import konvene
from konvene.cli.reference import render_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_reference_page_is_current() -> None:
    """After a change of a command run `python -m konvene.cli.reference docs/reference/cli.md`."""
    assert PAGE.read_text("utf-8") == render_reference()


def test_every_command_has_a_section() -> None:
    """Groups and their subcommands, each under its full name."""
    context = click.Context(konvene, info_name="konvene")
    page = render_reference()
    for name in konvene.list_commands(context):
        command = konvene.get_command(context, name)
        assert f"\n## konvene {name}\n" in page
        if isinstance(command, click.Group):
            children = [command.get_command(context, child) for child in command.list_commands(context)]
            for child in children:
                if child is not None and not child.hidden:
                    assert f"\n### konvene {name} {child.name}\n" in page
