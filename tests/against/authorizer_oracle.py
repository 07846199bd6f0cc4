"""Random ACLs and questions for konvene's `StandardAuthorizer` and for Apache Kafka's: equal answers.

`python -m tests.against.authorizer_oracle --questions 200000` compares decisions and lines of the audit, and
prints the differences. Both authorizers get the same JSON (authorizer/.../AuthorizerOracle.java). Names,
users and addresses are few, so that most questions meet several ACLs.

Left out is what Kafka cannot decide (docs/differences.md): its search for ACLs of a name that begins with a
character below `*` may not end, and it fails for a client with the name `*`.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.authorizer import AUDIT_LOG, TRACE, StandardAuthorizer, parse_super_users
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, Resource, ResourceType

from .clients import MODEST, authorizer_classpath

QUESTIONS_PER_STEP = 25
NAMES = ("*", "a", "ab", "abc", "abd", "b", "*a", "-", "orders", "orders-1", "kafka-cluster", "User:bob", "é")
"""Names of resources in ACLs and in questions; those of questions may also be empty."""
PREFIXES = ("*", "a", "ab", "abc", "o", "orders", "kafka-cluster", "User:", "*a")
USERS = ("alice", "bob", "CN=a,O=b", "x:y", "")
PRINCIPALS = (*(f"User:{user}" for user in USERS), "User:*", "User:*", "Group:alice", "Group:*")
ADDRESSES = (
    "10.0.0.1", "10.0.0.2", "10.0.1.1", "127.0.0.1", "0.0.0.0", "255.255.255.255", "192.168.1.77", "::1",
    "::", "2001:db8::1", "2001:db8:0:1::1", "::ffff:10.0.0.1", "fe80::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
)  # fmt: skip
HOSTS = (
    "*", "*", "*", "10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:1",
    "::ffff:10.0.0.1", "10.0.0.0/24", "10.0.0.77/24", "10.0.0.1/32", "10.0.0.0/31", "10.0.0.0/8", "0.0.0.0/0",
    "192.168.1.0/30", "::/0", "2001:db8::/32", "2001:db8::/64", "::1/128", "fe80::/10", "::ffff:10.0.0.0/120",
    "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "/8", "256.0.0.0/8", "010.0.0.0/8", "10.0.0.0/08",
    "2001:db8::/129", "::/-1",
    "::/008", "::/+1", "10.0.0.0/24 ", "localhost", "localhost/8",
)  # fmt: skip
TYPES = tuple(each for each in ResourceType if each > ResourceType.ANY)
OPERATIONS = tuple(each for each in Operation if each > Operation.ANY)
SUPER_USERS = ("", "", "User:root", "User:alice; User:root", "User:*", "Group:alice;User:x:y")


class Question(NamedTuple):
    """A check: of a resource, or of any resource of a type if `name` is None."""

    principal_type: str
    user: str
    address: str
    operation: Operation
    resource_type: ResourceType
    name: str | None
    api_key: int
    logs: bool


class Step(NamedTuple):
    """Changes of ACLs, and the questions after them."""

    added: list[Acl]
    removed: list[Acl]
    questions: list[Question]


class World(NamedTuple):
    """An authorizer's settings, and the steps of its life."""

    super_users: str
    everyone: bool
    steps: list[Step]


Answer = tuple[bool, str]
"""Whether the operation is permitted, and the lines of the audit, each with its level."""


def worlds(seed: int, questions: int) -> Iterator[World]:
    """Yield random worlds with at least this many questions in all."""
    chance = random.Random(seed)
    while questions > 0:
        world = _world(chance)
        questions -= sum(len(step.questions) for step in world.steps)
        yield world


def _world(chance: random.Random) -> World:
    # With fewer types and operations more ACLs concern the same question.
    types = chance.sample(TYPES, chance.choice((1, 2, 6)))
    operations = chance.sample(OPERATIONS, chance.choice((2, 4, len(OPERATIONS))))
    denied = chance.choice((0, 0.1, 0.3, 0.6))
    known: list[Acl] = []
    steps = []
    for _ in range(chance.randrange(1, 4)):
        removed = chance.sample(known, chance.randrange(len(known) // 2 + 1))
        known = [acl for acl in known if acl not in removed]
        added: list[Acl] = []
        for _ in range(chance.choice((0, 1, 3, 10, 40))):
            acl = _acl(chance, types, operations, denied)
            if acl not in known and acl not in removed:
                added.append(acl)
                known.append(acl)
        questions = [_question(chance, types, operations) for _ in range(QUESTIONS_PER_STEP)]
        steps.append(Step(added, removed, questions))
    return World(chance.choice(SUPER_USERS), chance.random() < 0.3, steps)


def _acl(chance: random.Random, types: list[ResourceType], operations: list[Operation], denied: float) -> Acl:
    pattern = chance.choice((PatternType.LITERAL, PatternType.PREFIXED))
    return Acl(
        chance.choice(types),
        chance.choice(NAMES if pattern is PatternType.LITERAL else PREFIXES),
        pattern,
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        chance.choice(operations),
        PermissionType.DENY if chance.random() < denied else PermissionType.ALLOW,
    )


def _question(chance: random.Random, types: list[ResourceType], operations: list[Operation]) -> Question:
    any_resource = chance.random() < 0.2
    return Question(
        chance.choice(("User", "User", "User", "Group")),
        chance.choice(USERS),
        chance.choice(ADDRESSES),
        # authorizeByResourceType is for operations except ALL.
        chance.choice([o for o in operations if not any_resource or o is not Operation.ALL]),
        chance.choice(types),
        None if any_resource else chance.choice((*NAMES, "")),
        chance.choice((0, 3, 19)),
        chance.random() < 0.8,
    )


class _Lines(logging.Handler):
    """Keeps log records as lines of level and message."""

    def __init__(self) -> None:
        super().__init__(0)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        level = "TRACE" if record.levelno == TRACE else record.levelname
        self.lines.append(f"{level} {record.getMessage()}\n")

    def taken(self) -> str:
        """Return the lines since the last call."""
        text = "".join(self.lines)
        self.lines.clear()
        return text


@contextmanager
def _audited() -> Iterator[_Lines]:
    audit = logging.getLogger(AUDIT_LOG)
    level, propagates, handler = audit.level, audit.propagate, _Lines()
    audit.addHandler(handler)
    audit.setLevel(TRACE)
    audit.propagate = False
    try:
        yield handler
    finally:
        audit.removeHandler(handler)
        audit.setLevel(level)
        audit.propagate = propagates


def our_answers(world: World) -> list[Answer]:
    """Return konvene's answers to the questions of a world."""
    answers: list[Answer] = []
    authorizer = StandardAuthorizer((), parse_super_users(world.super_users), allows_everyone=world.everyone)
    with _audited() as audit:
        for step in world.steps:
            authorizer = authorizer.with_acls(step.added, step.removed)
            for each in step.questions:
                principal = KafkaPrincipal(each.principal_type, each.user)
                if each.name is None:
                    permitted = authorizer.authorize_by_resource_type(
                        principal, each.address, each.operation, each.resource_type, api_key=each.api_key
                    )
                else:
                    permitted = authorizer.authorize(
                        principal,
                        each.address,
                        each.operation,
                        Resource(each.resource_type, each.name),
                        api_key=each.api_key,
                        logs_denied=each.logs,
                    )
                answers.append((permitted, audit.taken()))
    return answers


class Oracle:
    """A JVM with Kafka's `StandardAuthorizer`."""

    def __init__(self) -> None:
        command = ["java", *MODEST, "-cp", authorizer_classpath(), "konvene.against.AuthorizerOracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)

    def answers(self, world: World) -> list[Answer]:
        """Return Kafka's answers to the questions of a world."""
        steps = [step._asdict() for step in world.steps]
        line = json.dumps({"super_users": world.super_users, "everyone": world.everyone, "steps": steps})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the oracle's process ended"
        return [(permitted, audit) for permitted, audit in json.loads(answer)]


class Difference(NamedTuple):
    """A question with different answers, and the ACLs at its time."""

    question: Question
    acls: list[Acl]
    ours: Answer
    kafkas: Answer

    def __str__(self) -> str:
        acls = "\n".join(f"  {acl}" for acl in self.acls)
        return f"{self.question}\n ours:   {self.ours}\n Kafka's: {self.kafkas}\n{acls}"


class Comparison(NamedTuple):
    """Numbers of questions, of those permitted, and the differences."""

    questions: int
    permitted: int
    differences: list[Difference]


def compare(seed: int, questions: int) -> Comparison:
    """Compare the answers to random questions. Raises `Unavailable` without Java or Maven."""
    count = permitted = 0
    differences = []
    with Oracle() as oracle:
        for world in worlds(seed, questions):
            ours, kafkas = our_answers(world), oracle.answers(world)
            count += len(ours)
            permitted += sum(answer[0] for answer in kafkas)
            if ours != kafkas:
                differences += list(_differences(world, ours, kafkas))
    return Comparison(count, permitted, differences)


def _differences(world: World, ours: list[Answer], kafkas: list[Answer]) -> Iterator[Difference]:
    acls: list[Acl] = []
    pairs = zip(ours, kafkas, strict=True)
    for step in world.steps:
        acls = [acl for acl in acls if acl not in step.removed] + step.added
        for question in step.questions:
            our, kafka = next(pairs)
            if our != kafka:
                yield Difference(question, [a for a in acls if a[0] is question.resource_type], our, kafka)


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; return 1 if there are differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.against.authorizer_oracle", description=__doc__)
    parser.add_argument("--questions", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    found = compare(options.seed, options.questions)
    sys.stdout.writelines(f"{difference}\n" for difference in found.differences[:20])
    sys.stdout.write(
        f"{found.questions:,} questions, {found.permitted:,} permitted by Kafka: "
        f"{len(found.differences):,} differences\n"
    )
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())
