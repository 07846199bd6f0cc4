"""Commands that repeat until Ctrl-C or SIGTERM, which end them with exit code 0.

`groups describe --watch` draws one screen again and again, `groups history --follow` prints what is new.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import click

from konvene.cli.options import Failure, failure_of
from konvene.cli.output import iso, note
from konvene.plurals import counted

__all__ = ["Outages", "Screen", "WatchCommand", "repeat", "watch_option"]

DEFAULT_INTERVAL_S = 2.0


class WatchCommand(click.Command):
    """A command with `--watch [SECONDS]`. The word after `--watch` is its value only if it is a number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        following = [*args[1:], ""]
        explicit = [
            f"{arg}={DEFAULT_INTERVAL_S}"
            if arg == "--watch" and not re.fullmatch(r"-?[\d.]+", after)
            else arg
            for arg, after in zip(args, following, strict=False)
        ]
        return super().parse_args(ctx, explicit)


watch_option = click.option(
    "--watch",
    "interval_s",
    type=click.FloatRange(0.1),
    metavar="[SECONDS]",
    help=f"Repeat every {DEFAULT_INTERVAL_S:g} s, or at this interval, until Ctrl-C.",
)


Print = Callable[[], None]
"""A function that prints what a step has read."""


async def repeat(
    step: Callable[[], Awaitable[Print]], interval_s: float, show: Callable[[Print], None],
    show_failure: Callable[[Failure], None],
) -> None:  # fmt: skip
    """Await `step()` every `interval_s` seconds and show its output, until Ctrl-C or SIGTERM.

    An error of the first step is raised. A later one is shown, and the next step tries again."""
    import asyncio

    from konvene.client.errors import ClientError

    succeeded = False
    with contextlib.suppress(asyncio.CancelledError):  # Raised by the signal handlers of `options.run`.
        while True:
            try:
                output = await step()
            except (ClientError, Failure) as error:
                if not succeeded:
                    raise
                show_failure(error if isinstance(error, Failure) else failure_of(error))
            else:
                succeeded = True
                show(output)
            await asyncio.sleep(interval_s)


class Outages:
    """Notes about failed steps: one when the failure changes, and one when a step succeeds again."""

    def __init__(self) -> None:
        self._message = ""

    def show(self, output: Print) -> None:
        if self._message:
            note("The cluster is available again.")
            self._message = ""
        output()
        sys.stdout.flush()

    def show_failure(self, failure: Failure) -> None:
        message = failure.format_message()
        if message != self._message:
            note(f"{message}; retrying.")
            self._message = message


class Screen:
    """Output that is redrawn in place on a terminal, with its notes, and printed anew elsewhere."""

    def __init__(self, interval_s: float) -> None:
        self._title = f"every {interval_s:g} s, Ctrl-C ends this"
        self._is_terminal = sys.stdout.isatty()
        self._is_first = True

    def show(self, output: Print) -> None:
        """Draw the next frame: the time and what `output()` prints."""
        title = f"{iso(time.time_ns() // 1_000_000)} UTC, {self._title}"
        if self._is_terminal:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                output()
            self._draw([title, *printed.getvalue().splitlines()])
        else:
            if not self._is_first:
                click.echo()
            note(title)
            output()
            sys.stdout.flush()
        self._is_first = False

    def show_failure(self, failure: Failure) -> None:
        self.show(failure.show)

    def _draw(self, lines: Sequence[str]) -> None:
        """Overwrite the terminal; lines are cut at its edges."""
        height = max(shutil.get_terminal_size().lines - 1, 2)
        if len(lines) > height:
            lines = [*lines[: height - 1], f"… and {counted(len(lines) - height + 1, 'more line')}"]
        clear = "\x1b[2J" if self._is_first else ""
        text = "".join(f"{line}\x1b[K\n" for line in lines)
        sys.stdout.write(f"\x1b[?7l{clear}\x1b[H{text}\x1b[J\x1b[?7h")
        sys.stdout.flush()
