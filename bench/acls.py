"""CPU time of one check of the authorizer with 100, 10,000 and 100,000 ACLs.

Run with `python -m bench.acls`. Each figure is the best of twenty rounds, in microseconds. A figure over its
limit makes the exit code 1; among the other benchmarks these figures have no limit.

Of the ACLs one in ten is PREFIXED, one in twenty denies, one in twenty is for a range of addresses, and one
in fifty for all users; the others are of a hundred users. Two thirds of the questions have an ACL of their
own.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import cycle

from bench.codec import ROUNDS, measure_us
from bench.figures import Figure, less
from bench.systems import Lab
from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.authorizer import StandardAuthorizer
from konvene.security.principal import USER, KafkaPrincipal
from konvene.security.resources import Operation, Resource, ResourceType

SIZES = {100: None, 10_000: 3.0, 100_000: None}
"""Limits in microseconds by number of ACLs."""
QUESTIONS = 1_000
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
WORDS = ("orders", "payments", "clicks", "team-a.stock", "eu.warehouse.shelves")


def acls(count: int) -> list[Acl]:
    """Return random ACLs, the same ones at each call."""
    chance = random.Random(1)
    found = []
    for number in range(count):
        is_prefix = chance.random() < 0.1
        name = f"{chance.choice(WORDS)}-{number}"
        host = "*" if chance.random() < 0.95 else f"10.{chance.randrange(256)}.0.0/16"
        found.append(
            Acl(
                chance.choice(TYPES),
                name[: -chance.randrange(1, 3)] if is_prefix else name,
                PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
                "User:*" if chance.random() < 0.02 else f"User:user-{number % 100}",
                host,
                chance.choice(OPERATIONS),
                PermissionType.DENY if chance.random() < 0.05 else PermissionType.ALLOW,
            )
        )
    return found


def checks(count: int) -> Callable[[], object]:
    """Return a function that makes the next check of an authorizer with `count` ACLs."""
    chance = random.Random(2)
    known = acls(count)
    authorizer = StandardAuthorizer(known)
    questions = []
    for acl in chance.choices(known, k=QUESTIONS):
        name = acl.resource_name if chance.random() < 0.67 else f"{acl.resource_name}-x"
        user = acl.principal.partition(":")[2]
        questions.append(
            (KafkaPrincipal(USER, user), "10.0.0.1", acl.operation, Resource(acl.resource_type, name))
        )
    following = cycle(questions).__next__

    def check() -> bool:
        return authorizer.authorize(*following())

    return check


def figures(lab: Lab) -> list[Figure]:
    """Return the figures for the table of all benchmarks; no broker is needed."""
    rounds = lab.of(ROUNDS)
    return [
        less(f"a check with {size:,} ACLs, µs", [measure_us(checks(lab.of(size)), rounds)]) for size in SIZES
    ]


def main() -> int:
    over = 0
    print(f"{'':<30} {'µs':>8} {'bar':>6}")
    for size, bar_us in SIZES.items():
        took_us = measure_us(checks(size))
        missed = bar_us is not None and took_us > bar_us
        over += missed
        bar = "" if bar_us is None else f"{bar_us:g}"
        print(f"{f'a check with {size:,} ACLs':<30} {took_us:>8.2f} {bar:>6}{'  over' if missed else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
