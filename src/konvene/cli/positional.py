"""Names that commands take as an argument or as an option: `topics create orders`, or `--topic orders` as
Kafka's tools do.

A default of the option (`profiles`) does not count if the command line gives names otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
from click.core import ParameterSource

from konvene.cli.name_completion import Completer

__all__ = ["explicit", "one_name", "several_names"]

F = TypeVar("F", bound=Callable[..., object])


def one_name(
    parameter: str, completer: Completer, *, aliases: Sequence[str] = (), required: bool = True
) -> Callable[[F], F]:
    """Return a decorator that adds an argument and an option to a command, such as TOPIC and --topic for
    `topic`, passed as `parameter`. Exactly one name has to be given; at most one if not `required`."""
    option, word = _option_of(parameter), _word_of(parameter)

    def decorate(command: F) -> F:
        @click.argument("word", required=False, metavar=word, shell_complete=completer)
        @click.option(
            option, *aliases, "name", metavar=word, shell_complete=completer, help=f"Alternative to {word}."
        )
        @functools.wraps(command)
        def wrapped(*args: object, word: str | None, name: str | None, **kwargs: object) -> object:
            found = {each for each in (word, name if word is None or explicit("name") else None) if each}
            if len(found) > 1 or (required and not found):
                raise click.UsageError(f"Give one {_word_of(parameter)} (or {option} {_word_of(parameter)}).")
            return command(*args, **{parameter: next(iter(found), None)}, **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


def several_names(parameter: str, completer: Completer) -> Callable[[F], F]:
    """Return a decorator that adds a repeatable argument and option to a command, such as GROUP... and
    --group for `group`, passed as a tuple of distinct names in the parameter `names`."""
    word = _word_of(parameter)

    def decorate(command: F) -> F:
        @click.argument("words", nargs=-1, metavar=f"[{word}]...", shell_complete=completer)
        @click.option(
            _option_of(parameter),
            "options",
            multiple=True,
            metavar=word,
            shell_complete=completer,
            help=f"Alternative to {word}; may be repeated.",
        )
        @functools.wraps(command)
        def wrapped(
            *args: object, words: tuple[str, ...], options: tuple[str, ...], **kwargs: object
        ) -> object:
            names = (*words, *options) if not words or explicit("options") else words
            return command(*args, names=tuple(dict.fromkeys(names)), **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


def explicit(parameter: str) -> bool:
    """Return True if the command line gives the parameter."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _option_of(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def _word_of(parameter: str) -> str:
    return parameter.replace("_", "-").upper()
