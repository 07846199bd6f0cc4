"""`konvene completion`: the script that completes commands and options in a shell.

The script is click's; it calls `konvene` for each completion, so it is valid for later versions as well.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your shell.

    \b
    eval "$(konvene completion bash)"     in ~/.bashrc
    eval "$(konvene completion zsh)"      in ~/.zshrc
    konvene completion fish | source      in ~/.config/fish/config.fish
    """
    from konvene.cli.app import konvene

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(konvene, {}, "konvene", "_KONVENE_COMPLETE").source())
