"""`konvene completion`: the script that makes a shell complete commands and options.

The script is click's own; it asks `konvene` itself at each press of the key, so it never grows old.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in your shell.

    \b
    eval "$(konvene completion bash)"     in ~/.bashrc
    eval "$(konvene completion zsh)"      in ~/.zshrc
    konvene completion fish | source      in ~/.config/fish/config.fish
    """
    from konvene.cli.app import konvene

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(konvene, {}, "konvene", "_KONVENE_COMPLETE").source())
