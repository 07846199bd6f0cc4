"""Output of rebalances, traces and summaries: text for a terminal, or JSON, one object per line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from konvene.cli.output import Table, iso, note, print_json_line, print_tables, text_of
from konvene.groups.history import duration
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.pipeline.answers import Cost, Rebalance, RebalanceTrace, Summary
    from konvene.pipeline.answers.cost import Key as CostKey

__all__ = [
    "print_documents",
    "print_rebalance",
    "print_summary",
    "print_trace",
    "trace_document",
    "with_clusters",
]

MAX_ROWS = 10


def print_rebalance(rebalance: Rebalance, cost: Cost | None, *, with_cluster: bool = False) -> None:
    """Print one rebalance: its time, group and epoch, a sentence about its cause and cost, and a note if it
    was inferred. `with_cluster` adds the name of the cluster."""
    from konvene.pipeline.answers import note as note_of
    from konvene.pipeline.answers import sentence, title

    when = iso(rebalance.at_ms) or "at an unknown time"
    which = title(rebalance) + (f", cluster {rebalance.cluster or 'unnamed'}" if with_cluster else "")
    click.echo(f"{click.style(when, dim=True)}  {click.style(text_of(which), bold=True)}")
    _echo(sentence(rebalance, cost))
    evidence = note_of(rebalance)
    if evidence:
        _echo(evidence, dim=True)


def print_documents(
    rebalances: Iterable[Rebalance], costs: Mapping[CostKey, Cost], damaged: Container[CostKey] = ()
) -> None:
    """Print a JSON object per rebalance, one per line; `damaged` has the keys of those next to damage."""
    from konvene.pipeline.answers import document, sentence

    for each in rebalances:
        cost = costs.get(each.key)
        print_json_line(document(each, cost, sentence(each, cost), damaged=each.key in damaged))


def _echo(text: str, *, dim: bool = False, indent: str = "    ") -> None:
    """Print a paragraph, wrapped to the width of a terminal."""
    lines = [text_of(text)]
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns, 40)
        lines = textwrap.wrap(lines[0], width - len(indent), break_on_hyphens=False) or [""]
    for line in lines:
        click.echo(indent + (click.style(line, dim=True) if dim else line))


# a trace --------------------------------------------------------------------------------------


def print_trace(trace: RebalanceTrace) -> None:
    """Print the steps of a rebalance, a timeline for each member, and what the log does not record."""
    from konvene.pipeline.answers import caveats
    from konvene.pipeline.answers.timeline import DRAWN, PLAIN, legend, timeline

    r = trace.rebalance
    click.echo(f"{iso(r.at_ms) or 'at an unknown time'}  {click.style(text_of(trace.title), bold=True)}")
    _echo(trace.sentence)
    if trace.note:
        _echo(trace.note, dim=True)
    click.echo()
    began = r.start_ms if r.start_ms is not None else min((s.ms for s in trace.steps), default=0)
    times = [_after(step.ms - began) for step in trace.steps]
    width = max(map(len, times), default=0)
    for at, step in zip(times, trace.steps, strict=True):
        click.echo(f"  {at.rjust(width)}  {text_of(step.text)}")
    letters = DRAWN if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else PLAIN
    columns = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    lanes = timeline(trace, columns - 2, letters)
    if lanes:
        click.echo()
        for line in [*lanes, legend(letters)]:
            click.echo(f"  {''.join(c if c.isprintable() else ascii(c)[1:-1] for c in line)}")
    if trace.followers:
        click.echo()
        print_tables([_members(trace)])
    if trace.unknown:
        note(f"The log does not record {', '.join(trace.unknown)}.")
    for text in caveats([trace.rebalance]):
        note(text)


def _after(ms: int) -> str:
    sign = "-" if ms < 0 else "+"
    return f"{sign}{duration(abs(ms))}"


def _members(trace: RebalanceTrace) -> Table:
    heads = (
        "MEMBER", "CHANGE", "BEFORE", "AFTER", "REVOKED", "ADDED", "CONVERGED-AFTER", "STATES", "WAITED-FOR",
    )  # fmt: skip
    rows = [
        (
            f.name, f.part, f.before, f.after, f.revoked, f.added,
            duration(f.acknowledged_ms) if f.acknowledged_ms is not None else None,
            ",".join(f.states), ", ".join(f.waited_for),
        )
        for f in trace.followers
    ]  # fmt: skip
    return Table(heads, rows)


def trace_document(trace: RebalanceTrace, document: dict[str, object]) -> dict[str, object]:
    """Return the JSON document of a rebalance with the fields of its trace added."""
    return {
        **document,
        "steps": [step._asdict() for step in trace.steps],
        "member_stories": [
            {**f._asdict(), "states": list(f.states), "waited_for": list(f.waited_for)}
            for f in trace.followers
        ],
        "members_left_out": trace.left_out,
        "unknown": list(trace.unknown),
    }


# a summary ------------------------------------------------------------------------------------


def print_summary(summary: Summary, rebalances: Sequence[Rebalance]) -> None:
    """Print the most expensive groups, rebalance storms, clients that trigger most rebalances, and advice."""
    from konvene.pipeline.answers import caveats

    span = duration(max(summary.to_ms - summary.from_ms, 0)) if summary.from_ms >= 0 else "an unknown time"
    count, groups = counted(summary.rebalances, "rebalance"), counted(len(summary.groups), "group")
    click.echo(f"{count} of {groups} within {_long(span, summary)}.")
    click.echo()
    print_tables(_tables(summary))
    if summary.groups:
        click.echo()
        _echo(_LEGEND, dim=True, indent="")
        silent = _silence(rebalances)
        if silent:
            _echo(silent, dim=True, indent="")
    if summary.advice:
        click.echo()
        click.echo(click.style("Advice", bold=True))
        several = len({g.cluster for g in summary.groups}) > 1
        for each in summary.advice[:MAX_ROWS]:
            where = f", cluster {each.cluster or 'unnamed'}" if several else ""
            _echo(f"{each.group}{where}: {each.text}", indent="  ")
        _more(len(summary.advice) - MAX_ROWS, "pieces of advice")
    inferred = sum(1 for each in rebalances if each.evidence != "observed")
    if inferred:
        click.echo()
        _echo(
            f"{inferred:,} of {len(rebalances):,} are inferred from Kafka's records. "
            + " ".join([*caveats(rebalances), "Add the logs of __konvene_audit to the input to use it."]),
            dim=True, indent="",
        )  # fmt: skip


def _silence(rebalances: Sequence[Rebalance]) -> str:
    """Return a sentence on the time before sessions expired, which partition-seconds do not include; empty if
    no session can have expired."""
    known = [each.silent_ms for each in rebalances if each.silent_units and each.silent_ms is not None]
    unknown = sum(1 for each in rebalances if each.silent_units and each.silent_ms is None)
    parts = [f"at most {sum(known) / 1000:,.1f} in {_rebalances(len(known))}"] if known else []
    if unknown:
        parts.append(f"unknown in {_rebalances(unknown)}, since the log does not record the session timeout")
    found = "; ".join(parts)
    return f"PARTITION-SECONDS without the time before a session expired: {found}." if parts else ""


def _rebalances(count: int) -> str:
    return f"{count:,} rebalance{'' if count == 1 else 's'}"


_LEGEND = (
    "PARTITION-SECONDS: partitions × seconds without an owner. "
    "STORM: 5 or more rebalances in 10 min. MOVED: partitions or tasks with a new owner."
)


def _long(span: str, summary: Summary) -> str:
    ms = summary.to_ms - summary.from_ms
    return span if ms < 7_200_000 else f"{ms // 3_600_000} h {ms % 3_600_000 // 60_000} min"


def _tables(summary: Summary) -> Iterable[Table]:
    rows: list[tuple[object, ...]] = [
        (
            g.group_id, g.group_type, g.rebalances, g.members, _time(g.median_ms), _time(g.slowest_ms),
            _seconds(g.unavailable_ms), g.moved, g.storms,
            ", ".join(f"{kind} {count}" for kind, count in g.causes[:2]),
        )
        for g in summary.groups[:MAX_ROWS]
    ]  # fmt: skip
    heads: tuple[str, ...] = (
        "GROUP", "TYPE", "#REBALANCES", "#MEMBERS", "MEDIAN", "SLOWEST", "PARTITION-SECONDS", "#MOVED",
        "#STORMS", "CAUSES",
    )  # fmt: skip
    several = len({g.cluster for g in summary.groups}) > 1
    yield with_clusters(Table(heads, rows), [g.cluster for g in summary.groups], several)
    if summary.storms:
        storms = [
            (s.group_id, iso(s.from_ms), duration(s.to_ms - s.from_ms), s.rebalances)
            for s in summary.storms[:MAX_ROWS]
        ]
        table = Table(("STORM IN", "BEGAN (UTC)", "LASTED", "#REBALANCES"), storms)
        yield with_clusters(table, [s.cluster for s in summary.storms], several)
    if summary.triggering:
        members = [
            (t.name, t.group_id, f"{t.rebalances} of {t.of}", ", ".join(f"{k} {n}" for k, n in t.kinds[:3]))
            for t in summary.triggering[:MAX_ROWS]
        ]
        table = Table(("CLIENT", "GROUP", "TRIGGERED", "CAUSES"), members)
        yield with_clusters(table, [t.cluster for t in summary.triggering], several)


def with_clusters(table: Table, clusters: Sequence[str], several: bool | None = None) -> Table:
    """Return the table with a first column for the cluster of each row, if there are `several`.

    By default there are if the rows have different ones; `clusters` may have more than the table has rows."""
    if several is False or (several is None and len(set(clusters)) < 2):
        return table
    named = [(cluster or "unnamed", *row) for cluster, row in zip(clusters, table.rows, strict=False)]
    return Table(("CLUSTER", *table.columns), named)


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:,.1f}"


def _time(ms: int | None) -> str | None:
    return None if ms is None else duration(ms)


def _more(count: int, what: str) -> None:
    if count > 0:
        click.echo(f"  … and {count:,} {what} more")
