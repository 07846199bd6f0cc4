"""Plays `conversations` against a broker, and compares them with the outcomes that Apache Kafka has.

Each set of rights is a user, so that a conversation is one request on the user's connection. An outcome is
the rendered response, the lines of the audit about denials, and what a probe shows to have changed.

`python -m tests.authorization_cases.outcomes` plays all conversations on konvene and compares; with `--kafka`
on Apache Kafka; with `--kafka --record` it writes `recorded.json` instead.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.authorization_cases.conversations import CONVERSATIONS, Conversation, World
from tests.authorization_cases.stage import (
    PROBES,
    USERS,
    AuditedKafka,
    AuditedKonvene,
    Chosen,
    Probe,
    Stage,
    rendered,
    renew_producer,
    stage_of,
)

from konvene.broker.net.router import HANDLERS
from konvene.messages import BY_NAME
from konvene.security.resources import ResourceType

RECORDED = Path(__file__).with_name("recorded.json")


class Outcome(NamedTuple):
    """The rendered response, the denials in the audit, and what has changed."""

    response: str
    denied: tuple[str, ...]
    effect: str


# --- lines of the audit -----------------------------------------------------------------------------

_CREATED_BY_METADATA = re.compile(r"^(\[(?:[^\]]*; )?)ok new(?: #id)? \[ok 0\](?=(?:;|\]))")
"""The topic that a Metadata request has created; Kafka returns an error first (docs/differences.md)."""
_DENIED = re.compile(
    r"Principal = User:(\w+) is Denied operation = (\w+) from host = 127\.0\.0\.1"
    r" on resource = (\w+):LITERAL:(.+) for request = (\w+) with resourceRefCount = (\d+) based on rule (.*)"
)


def denials(lines: Iterable[str], user: str, api: str) -> tuple[str, ...]:
    """Return the denials of a user in a log, sorted: operation, resource, and count if it is not 1."""
    found = []
    for match in filter(None, map(_DENIED.search, lines)):
        name, operation, kind, resource, request, count, _ = match.groups()
        assert name == user, match[0]
        if kind == "DelegationToken":
            resource = "token"  # Its id is random.
        text = f"{operation} {kind}:{resource}" + ("" if count == "1" else f" x{count}")
        found.append(text if request == api else f"{text} for {request}")
    return tuple(sorted(found))


# --- play -------------------------------------------------------------------------------------------

Expected = Mapping[str, Outcome]
"""Outcomes of a conversation by set of rights."""


def play(
    stage: Stage, world: World, row: Conversation, rights: Iterable[str], expected: Expected | None
) -> dict[str, Outcome]:
    """Return the outcomes of a conversation; `expected` if they are not recorded now."""
    probe = PROBES.get(row.effect)
    api = row.api_name
    if ResourceType.TRANSACTIONAL_ID in row.types:
        renew_producer(stage, world)
    before = ""
    if probe is not None:
        probe.restore(stage, world)
        before = probe.state(stage, world)
    found = {}
    for each in rights:
        user = f"u{USERS.index(each)}"
        stage.log_lines()
        response = rendered(stage.ask(user, row.request(world), row.version), world)
        response = _CREATED_BY_METADATA.sub(r"\1UNKNOWN_TOPIC_OR_PARTITION new", response)
        denied = denials(stage.log_lines(), user, api)
        effect = ""
        if probe is not None:
            wanted = None if expected is None else expected[each].effect
            effect = _effect(stage, world, probe, before, wanted)
            if effect:
                probe.restore(stage, world)
                stage.until(lambda: probe.state(stage, world) == before, f"restored {row.effect}")
        found[each] = Outcome(response, denied, effect)
    return found


def _effect(stage: Stage, world: World, probe: Probe, before: str, wanted: str | None) -> str:
    """Return the changed state, "" if it has not changed; wait for `wanted` if the broker needs time."""
    deadline = time.monotonic() + (stage.settles_s if wanted is not None else min(stage.settles_s, 0.25))
    while True:
        after = probe.state(stage, world)
        effect = "" if after == before else after
        if effect == wanted or time.monotonic() >= deadline:
            return effect
        time.sleep(0.02)


class Difference(NamedTuple):
    """A conversation whose outcome is not the recorded one."""

    name: str
    rights: str
    recorded: Outcome
    actual: Outcome

    def __str__(self) -> str:
        lines = [f"{self.name}, {self.rights}:"]
        for field in Outcome._fields:
            want, got = getattr(self.recorded, field), getattr(self.actual, field)
            if want != got:
                lines.append(f"  {field}\n    recorded {want}\n    actual   {got}")
        return "\n".join(lines)


def compare(stage: Stage, world: World, chosen: Chosen) -> tuple[int, list[Difference]]:
    """Play conversations; return their number and the differences from the recorded outcomes."""
    recorded = read()
    count, differences = 0, []
    for row, rights in chosen:
        expected = recorded[row.name]
        for each, actual in play(stage, world, row, rights, expected).items():
            count += 1
            if actual != expected[each]:
                differences.append(Difference(row.name, each, expected[each], actual))
    return count, differences


def every(*, served: bool = True) -> Chosen:
    """Return all conversations with all sets of rights. `served`: only those of APIs that konvene serves."""
    rows = (row for row in CONVERSATIONS if not served or BY_NAME[row.api_name].key in HANDLERS)
    return [(row, row.sets_of_rights()) for row in rows]


def sample(size: int, seed: int = 0) -> Chosen:
    """Return all conversations with no right, all rights, and random sets of rights.

    There are `size` sets in all, and fewer for conversations with effects."""
    chosen = []
    for row, rights in every():
        chance = random.Random(f"{seed} {row.name}")
        more = min(size - 2, len(rights) - 2) // (3 if row.effect else 1)
        chosen.append((row, [*rights[:2], *chance.sample(rights[2:], more)]))
    return chosen


# --- recorded outcomes ------------------------------------------------------------------------------


def read() -> dict[str, dict[str, Outcome]]:
    """Return the recorded outcomes by the conversation's name and set of rights."""
    return {
        name: {
            rights: Outcome(each["response"], tuple(each["denied"]), each["effect"])
            for each in outcomes
            for rights in each["rights"]
        }
        for name, outcomes in json.loads(RECORDED.read_text()).items()
    }


def write(outcomes: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Write the outcomes of all conversations; sets of rights with the same outcome stand together."""
    document = {}
    for name, by_rights in outcomes.items():
        together: dict[Outcome, list[str]] = {}
        for rights, outcome in by_rights.items():
            together.setdefault(outcome, []).append(rights)
        document[name] = [{**outcome._asdict(), "rights": rights} for outcome, rights in together.items()]
    RECORDED.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Compare all conversations, or record them; return 1 if there are differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.authorization_cases.outcomes", description=__doc__)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these conversations")
    options = parser.parse_args(arguments)
    chosen = [
        each for each in every(served=not options.kafka) if not options.only or each[0].name in options.only
    ]
    with tempfile.TemporaryDirectory() as directory:
        kind = AuditedKafka if options.kafka else AuditedKonvene
        with stage_of(kind, Path(directory), chosen) as (stage, world):
            if options.record:
                recorded = read() if options.only else {}
                write(recorded | {row.name: play(stage, world, row, rights, None) for row, rights in chosen})
                return 0
            count, differences = compare(stage, world, chosen)
    sys.stdout.writelines(f"{difference}\n" for difference in differences)
    sys.stdout.write(f"{count:,} conversations: {len(differences):,} differences\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
