"""Options that describe the simulated group, for `konvene sim what-if` and `konvene sim sweep`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from konvene.cli.options import fail
from konvene.cli.sim.options import pairs_of

__all__ = ["can_plot", "plan_options"]

F = TypeVar("F", bound=Callable[..., object])

RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:/(s|min|m|h))?")
PER_MINUTE = {"s": 60.0, "min": 1.0, "m": 1.0, "h": 1 / 60, None: 1.0}


def _rate(context: click.Context, parameter: click.Parameter, text: str) -> float:
    found = RATE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text}: write 2/min or 5/h.")
    return float(found[1]) * PER_MINUTE[found[2]]


def _seconds(context: click.Context, parameter: click.Parameter, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?)(ms|s|min|m)?", text.strip())
    if found is None:
        raise click.BadParameter(f"{text}: write 20s or 2min.")
    return float(found[1]) * {"ms": 0.001, "s": 1, "min": 60, "m": 60, None: 1}[found[2]]


def plan_options(command: F) -> F:
    """Add the options that describe a simulated group to a command, passed as the parameter `plan`, which is
    not validated yet."""

    @click.option(
        "--members",
        type=click.IntRange(1),
        default=20,
        show_default=True,
        metavar="N",
        help="Number of members.",
    )
    @click.option(
        "--partitions",
        type=click.IntRange(1),
        default=100,
        show_default=True,
        metavar="N",
        help="Partitions of the topic.",
    )
    @click.option(
        "--protocol",
        default="classic",
        show_default=True,
        metavar="NAME",
        help="group.protocol of the members: classic or consumer.",
    )
    @click.option("--static", is_flag=True, help="Members have instance ids (group.instance.id).")
    @click.option(
        "--assignor",
        default="",
        metavar="NAME",
        help="range (default), roundrobin or cooperative-sticky; for a consumer group uniform (default)"
        " or range.",
    )
    @click.option(
        "--session-timeout-ms",
        type=click.IntRange(1),
        default=45_000,
        show_default=True,
        metavar="MS",
        help="session.timeout.ms of the members.",
    )
    @click.option(
        "--heartbeat-interval-ms",
        type=click.IntRange(1),
        default=3_000,
        show_default=True,
        metavar="MS",
        help="heartbeat.interval.ms of the members.",
    )
    @click.option(
        "--max-poll-interval-ms",
        type=click.IntRange(1),
        default=300_000,
        show_default=True,
        metavar="MS",
        help="max.poll.interval.ms of the members.",
    )
    @click.option(
        "--revoke-ms",
        type=click.IntRange(0),
        default=1_000,
        show_default=True,
        metavar="MS",
        help="Maximum time that a member needs to revoke partitions.",
    )
    @click.option(
        "--kill-rate",
        default="0",
        callback=_rate,
        metavar="N/min",
        help="Rate at which members crash without leaving the group.",
    )
    @click.option("--rolling-restart", is_flag=True, help="Restart all members, one after another.")
    @click.option(
        "--at-once",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        metavar="N",
        help="Members that a rolling restart restarts at the same time.",
    )
    @click.option(
        "--deploy-pause",
        default="10s",
        show_default=True,
        callback=_seconds,
        metavar="TIME",
        help="Pause of a rolling restart between members.",
    )
    @click.option(
        "--down-for",
        default="20s",
        show_default=True,
        callback=_seconds,
        metavar="TIME",
        help="Downtime of a crashed or restarted member.",
    )
    @click.option(
        "--coordinator-failovers",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Number of coordinator failovers.",
    )
    @click.option(
        "--loss",
        type=click.FloatRange(0, 0.9),
        default=0.0,
        metavar="FRACTION",
        help="Fraction of requests and responses that is lost, such as 0.01.",
    )
    @click.option(
        "--latency-ms",
        type=click.IntRange(0),
        default=1,
        show_default=True,
        metavar="MS",
        help="Mean one-way network latency.",
    )
    @click.option(
        "--minutes",
        type=click.FloatRange(0, min_open=True),
        default=30,
        show_default=True,
        metavar="M",
        help="Simulated time after the group has become stable.",
    )
    @click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A broker setting; may be repeated."
    )
    @functools.wraps(command)
    def wrapped(
        *args: object, settings: tuple[str, ...], deploy_pause: float, down_for: float, **words: Any
    ) -> object:
        from konvene.sim.runs.what_if import Plan

        known = {field.name for field in dataclasses.fields(Plan)}
        plan = Plan(
            deploy_pause_s=deploy_pause,
            down_for_s=down_for,
            settings=pairs_of("--set", settings),
            **{name: words.pop(name) for name in sorted(words.keys() & known)},
        )
        return command(*args, plan=plan, **words)

    return wrapped  # type: ignore[return-value]


def can_plot(picture: Path) -> None:
    """Check, before anything is simulated, that the plot can be drawn to this file. Raises UsageError or
    `Failure`."""
    from importlib.util import find_spec

    from konvene.sim.runs.plot import FORMATS

    if picture.suffix not in FORMATS:
        raise click.UsageError(f"--plot {picture}: the file name must end in {' or '.join(FORMATS)}.")
    if find_spec("matplotlib") is None:
        fail("--plot needs matplotlib, which is not installed", "pip install 'konvene[plot]'")
