"""Kafka's `StandardAuthorizer` as an immutable value: ACLs, super users and the default of one moment.

The order of the decision, as in Kafka 4.4:

1. A super user may do anything.
2. An ACL that denies wins over all that allow. `READ`, `WRITE`, `DELETE` and `ALTER` imply `DESCRIBE`, and
   `ALTER_CONFIGS` implies `DESCRIBE_CONFIGS`, in ACLs that allow.
3. Without a matching ACL the operation is denied, unless no ACL names the resource at all and
   `allow.everyone.if.no.acl.found` is set.

ACLs are found by principal, then by resource name: those of the name itself, of `*`, and, by a binary search,
of its prefixes.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from konvene.messages import API_KEYS
from konvene.security.acls import WILDCARD, Acl, AclFilter, PatternType, PermissionType
from konvene.security.hosts import is_in_range, java_address
from konvene.security.principal import USER, KafkaPrincipal, parse_principal
from konvene.security.resources import Operation, Resource, ResourceType

__all__ = ["AUDIT_LOG", "Rule", "StandardAuthorizer", "parse_super_users"]

AUDIT_LOG: Final = "kafka.authorizer.logger"
"""Logger of the audit: denials at INFO, grants at DEBUG, filters at TRACE."""
TRACE: Final = 5
"""Level of Kafka's TRACE; Python has no name for it."""

audit = logging.getLogger(AUDIT_LOG)

ALL_USERS: Final = KafkaPrincipal(USER, WILDCARD)

_O = Operation
IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    _O.DESCRIBE: frozenset((_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL)),
} | {
    operation: frozenset((operation, _O.ALL))
    for operation in _O
    if operation not in (_O.DESCRIBE, _O.DESCRIBE_CONFIGS)
}
"""Operations of ALLOW entries that permit an operation."""

RESOURCE_TYPE_NAMES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
"""Names of resource types in the audit."""


class Rule(NamedTuple):
    """The rule that decided an operation."""

    allows: bool
    acl: Acl | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name if self.acl is None else f"MatchingAcl(acl={self.acl})"


SUPER_USER: Final = Rule(True, name="SuperUser")
DEFAULT_ALLOW: Final = Rule(True, name="DefaultAllow")
DEFAULT_DENY: Final = Rule(False, name="DefaultDeny")


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """Return the principals of `super.users`, which semicolons separate. Raises ValueError."""
    return frozenset(parse_principal(user.strip()) for user in text.split(";") if user.strip())


class _Patterns(NamedTuple):
    """ACLs by name, each as the rule that it is: the literal ones, and those of prefixes."""

    literal: Mapping[str, tuple[Rule, ...]] = {}
    prefixed: Mapping[str, tuple[Rule, ...]] = {}
    prefixes: tuple[str, ...] = ()
    """Prefixes in order."""
    shorter: tuple[int, ...] = ()
    """Of each prefix, the index of the longest other one that it begins with; -1 if there is none."""

    def changed(self, acls: Iterable[Acl], *, added: bool) -> _Patterns:
        """Return patterns with these ACLs added or removed."""
        names = {PatternType.LITERAL: dict(self.literal), PatternType.PREFIXED: dict(self.prefixed)}
        for acl in acls:
            by_name = names[acl.pattern_type]
            rules = tuple(rule for rule in by_name.get(acl.resource_name, ()) if rule.acl != acl)
            if added:
                rules = (*rules, Rule(acl.permission_type is PermissionType.ALLOW, acl))
            if rules:
                by_name[acl.resource_name] = rules
            else:
                by_name.pop(acl.resource_name, None)
        prefixed = names[PatternType.PREFIXED]
        prefixes = tuple(sorted(prefixed))
        return _Patterns(names[PatternType.LITERAL], prefixed, prefixes, _shorter(prefixes))

    def of(self, name: str) -> list[tuple[Rule, ...]]:
        """Return the ACLs that apply to a resource: of its name, of `*`, and of its prefixes."""
        literal, prefixed, prefixes, shorter = self
        found = []
        rules = literal.get(name)
        if rules is not None:
            found.append(rules)
        rules = literal.get(WILDCARD)
        # Kafka does not apply ACLs of `*` to a name such as `*a`.
        if rules is not None and not name.startswith(WILDCARD):
            found.append(rules)
        if prefixes:
            # Between a prefix of the name and the name there are only names with this prefix.
            index = bisect_right(prefixes, name) - 1
            while index >= 0:
                prefix = prefixes[index]
                if name.startswith(prefix):
                    found.append(prefixed[prefix])
                index = shorter[index]
        return found

    def all(self) -> Iterable[Acl]:
        """Yield all ACLs."""
        for by_name in (self.literal, self.prefixed):
            for rules in by_name.values():
                for rule in rules:
                    assert rule.acl is not None
                    yield rule.acl


class _Section(NamedTuple):
    """The ACLs of one resource type by principal.

    A check reads those of two principals: its own, and all users."""

    by_principal: Mapping[KafkaPrincipal, _Patterns] = {}

    def changed(self, acls: Iterable[Acl], *, added: bool) -> _Section:
        """Return a section with these ACLs added or removed."""
        changes: dict[KafkaPrincipal, list[Acl]] = {}
        for acl in acls:
            changes.setdefault(acl.kafka_principal, []).append(acl)
        by_principal = dict(self.by_principal)
        for principal, members in changes.items():
            patterns = by_principal.get(principal, _NO_PATTERNS).changed(members, added=added)
            by_principal[principal] = patterns
            if not patterns.literal and not patterns.prefixed:
                del by_principal[principal]
        return _Section(by_principal)

    def names(self, name: str) -> bool:
        """Return True if an ACL of any principal applies to a resource."""
        return any(patterns.of(name) for patterns in self.by_principal.values())

    def all(self) -> Iterable[Acl]:
        """Yield all ACLs of the section."""
        for patterns in self.by_principal.values():
            yield from patterns.all()


def _shorter(prefixes: tuple[str, ...]) -> tuple[int, ...]:
    """Return `_Patterns.shorter` of ordered prefixes."""
    found = []
    open_: list[int] = []
    for index, prefix in enumerate(prefixes):
        while open_ and not prefix.startswith(prefixes[open_[-1]]):
            open_.pop()
        found.append(open_[-1] if open_ else -1)
        open_.append(index)
    return tuple(found)


_NO_PATTERNS: Final = _Patterns()
_EMPTY: Final = _Section()


class StandardAuthorizer:
    """The ACLs of a cluster, its super users, and whether resources without ACLs are open to everyone."""

    __slots__ = ("_default", "_sections", "_super_users")

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        super_users: frozenset[KafkaPrincipal] = frozenset(),
        *,
        allows_everyone: bool = False,
        sections: Mapping[ResourceType, _Section] | None = None,
    ) -> None:
        """`sections`: for `with_acls` only."""
        self._super_users = super_users
        self._default = DEFAULT_ALLOW if allows_everyone else DEFAULT_DENY
        self._sections = _changed(sections or {}, acls, added=True)

    def __repr__(self) -> str:
        return f"<standard authorizer: {sum(1 for _ in self.acls(AclFilter()))} ACLs>"

    def with_acls(self, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> StandardAuthorizer:
        """Return an authorizer with ACLs added and removed."""
        return StandardAuthorizer(
            added,
            self._super_users,
            allows_everyone=self._default.allows,
            sections=_changed(self._sections, removed, added=False),
        )

    def acls(self, selected: AclFilter) -> Iterable[Acl]:
        """Yield the ACLs that a filter selects."""
        for section in self._sections.values():
            for acl in section.all():
                if selected.matches(acl):
                    yield acl

    def find_rule(
        self, principal: KafkaPrincipal, host: str, operation: Operation, resource: Resource
    ) -> Rule:
        """Return the rule that decides whether `principal` at the address `host` may do an operation.

        Of several ACLs that decide alike it names the one that Kafka names: in the order of `_place`,
        the first that denies or the last that allows."""
        if self._super_users and principal in self._super_users:
            return SUPER_USER
        kind, name = resource
        section = self._sections.get(kind, _EMPTY)
        implying = IMPLIED_BY[operation]
        denying: list[Rule] = []
        allowing: list[Rule] = []
        for user in (principal, ALL_USERS):
            patterns = section.by_principal.get(user)
            if patterns is None:
                continue
            for rules in patterns.of(name):
                for rule in rules:
                    allows, acl, _ = rule
                    assert acl is not None
                    _, _, _, _, acl_host, acl_operation, _ = acl
                    if acl_host != WILDCARD and not _matches(acl_host, java_address(host)):
                        continue
                    if allows:
                        if acl_operation in implying:
                            allowing.append(rule)
                    elif acl_operation in (operation, Operation.ALL):
                        denying.append(rule)
        if denying:
            return denying[0] if len(denying) == 1 else min(denying, key=partial(_place, name))
        if allowing:
            return allowing[0] if len(allowing) == 1 else max(allowing, key=partial(_place, name))
        return self._default if self._default.allows and not section.names(name) else DEFAULT_DENY

    def authorize(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        api_key: int = -1,
        logs_denied: bool = True,
    ) -> bool:
        """Return True if the operation is permitted, and write a line to the audit."""
        rule = self.find_rule(principal, host, operation, resource)
        if rule.allows:
            level = logging.DEBUG if logs_denied else TRACE
        else:
            level = logging.INFO if logs_denied else TRACE
        if audit.isEnabledFor(level):
            audit.log(level, "%s", _audit_line(principal, host, operation, resource, api_key, rule))
        return rule.allows

    def authorize_by_resource_type(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        api_key: int = -1,
    ) -> bool:
        """Return True if the operation is permitted on at least one resource of the type.

        As Kafka, in this order: a resource that no ACL names, whose check is written to the audit; a literal
        or prefixed ACL that allows and that no prefixed or equal ACL denies. Implied operations do not
        count."""
        unnamed = Resource(resource_type, "hardcode")
        rule = self.find_rule(principal, host, operation, unnamed)
        level = logging.DEBUG if rule.allows else TRACE
        if audit.isEnabledFor(level):
            audit.log(level, "%s", _audit_line(principal, host, operation, unnamed, api_key, rule, count=0))
        if rule.allows:
            return True
        host = java_address(host)
        denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed: list[Acl] = []
        allows_all = False
        by_principal = self._sections.get(resource_type, _EMPTY).by_principal
        for acl in chain.from_iterable(
            by_principal.get(user, _NO_PATTERNS).all() for user in (principal, ALL_USERS)
        ):
            if acl.operation not in (operation, Operation.ALL) or not _matches(acl.host, host):
                continue
            is_wildcard = acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD
            if acl.permission_type is PermissionType.DENY:
                if is_wildcard:
                    return False
                denied[acl.pattern_type].add(acl.resource_name)
            elif is_wildcard:
                allows_all = True
            else:
                allowed.append(acl)
        return allows_all or any(_is_undenied(acl, denied) for acl in allowed)


def _changed(
    sections: Mapping[ResourceType, _Section], acls: Iterable[Acl], *, added: bool
) -> Mapping[ResourceType, _Section]:
    by_type: dict[ResourceType, list[Acl]] = {}
    for acl in acls:
        by_type.setdefault(acl.resource_type, []).append(acl)
    changed = dict(sections)
    for resource_type, members in by_type.items():
        changed[resource_type] = changed.get(resource_type, _EMPTY).changed(members, added=added)
    return changed


def _matches(acl_host: str, host: str) -> bool:
    return acl_host in (WILDCARD, host) or ("/" in acl_host and is_in_range(host, acl_host))


def _place(name: str, rule: Rule) -> tuple[bool, int, PatternType, Operation, str, str]:
    """Return the place of the ACL of a rule among those that apply to a resource, as in Kafka.

    First those of the name itself, then of its prefixes from the longest, then of `*`."""
    acl = rule.acl
    assert acl is not None
    is_wildcard = acl.pattern_type is PatternType.LITERAL and acl.resource_name != name
    return (
        is_wildcard,
        -len(acl.resource_name),
        acl.pattern_type,
        acl.operation,
        acl.principal,
        acl.host,
    )


def _is_undenied(acl: Acl, denied: Mapping[PatternType, set[str]]) -> bool:
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL and name in denied[PatternType.LITERAL]:
        return False
    return not any(name[: end + 1] in denied[PatternType.PREFIXED] for end in range(len(name)))


def _audit_line(
    principal: KafkaPrincipal,
    host: str,
    operation: Operation,
    resource: Resource,
    api_key: int,
    rule: Rule,
    count: int = 1,
) -> str:
    """Return the audit's line, word for word as Kafka's.

    `count`: how often the request names the resource."""
    api = API_KEYS.get(api_key)
    return (
        f"Principal = {principal} is {'Allowed' if rule.allows else 'Denied'} operation = {operation.name}"
        f" from host = {java_address(host)} on resource ="
        f" {RESOURCE_TYPE_NAMES[resource.type]}:LITERAL:{resource.name}"
        f" for request = {api.name if api is not None else 'None'} with resourceRefCount = {count}"
        f" based on rule {rule}"
    )
