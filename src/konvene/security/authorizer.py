"""Kafka's `StandardAuthorizer` as an immutable value: ACLs, super users and the default of one moment.

The order of the decision, as in Kafka 4.4:

1. A super user may do anything.
2. An ACL that denies wins over all that allow. `READ`, `WRITE`, `DELETE` and `ALTER` imply `DESCRIBE`, and
   `ALTER_CONFIGS` implies `DESCRIBE_CONFIGS`, in ACLs that allow.
3. Without a matching ACL the operation is denied, unless no ACL names the resource at all and
   `allow.everyone.if.no.acl.found` is set.

ACLs are found by resource name, then by principal: the literal name, `*`, and each prefix of the name whose
length some prefixed ACL has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
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

_ByPrincipal = Mapping[KafkaPrincipal, tuple[Acl, ...]]


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


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of `super.users`, which semicolons separate. Raises ValueError."""
    users = frozenset(user.strip() for user in text.split(";") if user.strip())
    for user in users:
        parse_principal(user)
    return users


class _Section(NamedTuple):
    """The ACLs of one resource type, by pattern and name, then by principal."""

    literal: Mapping[str, _ByPrincipal] = {}
    prefixed: Mapping[str, _ByPrincipal] = {}
    lengths: tuple[int, ...] = ()
    """Lengths of the prefixes, the longest first."""

    def changed(self, acls: Iterable[Acl], *, added: bool) -> _Section:
        """Return a section with these ACLs added or removed."""
        patterns = {PatternType.LITERAL: dict(self.literal), PatternType.PREFIXED: dict(self.prefixed)}
        for acl in acls:
            by_name = patterns[acl.pattern_type]
            by_principal = dict(by_name.get(acl.resource_name, {}))
            principal = acl.kafka_principal
            entries = tuple(known for known in by_principal.get(principal, ()) if known != acl)
            by_principal[principal] = (*entries, acl) if added else entries
            if not by_principal[principal]:
                del by_principal[principal]
            by_name[acl.resource_name] = by_principal
            if not by_principal:
                del by_name[acl.resource_name]
        prefixed = patterns[PatternType.PREFIXED]
        return _Section(
            patterns[PatternType.LITERAL],
            prefixed,
            tuple(sorted({len(name) for name in prefixed}, reverse=True)),
        )

    def of(self, name: str) -> list[_ByPrincipal]:
        """Return the ACLs that apply to a resource, by principal.

        In Kafka's order: of the name itself, of its prefixes from the longest, of `*`."""
        found = []
        exact = self.literal.get(name)
        if exact is not None:
            found.append(exact)
        size = len(name)
        for length in self.lengths:
            if length <= size:
                by_prefix = self.prefixed.get(name[:length])
                if by_prefix is not None:
                    found.append(by_prefix)
        if not name.startswith(WILDCARD):  # Kafka does not apply ACLs of `*` to a name such as `*a`.
            every = self.literal.get(WILDCARD)
            if every is not None:
                found.append(every)
        return found

    def all(self) -> Iterable[Acl]:
        """Yield all ACLs of the section."""
        for by_name in (self.literal, self.prefixed):
            for by_principal in by_name.values():
                for entries in by_principal.values():
                    yield from entries


_EMPTY: Final = _Section()


class StandardAuthorizer:
    """The ACLs of a cluster, its super users, and whether resources without ACLs are open to everyone."""

    __slots__ = ("_default", "_sections", "_super_users")

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        super_users: frozenset[str] = frozenset(),
        *,
        allows_everyone: bool = False,
        sections: Mapping[ResourceType, _Section] | None = None,
    ) -> None:
        """`super_users`: principals as `type:name`. `sections`: for `with_acls` only."""
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

        Of several ACLs that decide alike it names the one that Kafka names: the first that denies, the last
        that allows, in the order of `_Section.of` and `_order`."""
        if self._super_users and str(principal) in self._super_users:
            return SUPER_USER
        found = self._sections.get(resource.type, _EMPTY).of(resource.name)
        if not found:
            return self._default
        host = java_address(host)
        allowing = IMPLIED_BY[operation]
        allowed: Acl | None = None
        for by_principal in found:
            allows = denies = None
            for user in (principal, ALL_USERS):
                for acl in by_principal.get(user, ()):
                    if acl.permission_type is PermissionType.ALLOW:
                        if acl.operation in allowing and _matches(acl.host, host):
                            allows = acl if allows is None else max(allows, acl, key=_order)
                    elif acl.operation in (operation, Operation.ALL) and _matches(acl.host, host):
                        denies = acl if denies is None else min(denies, acl, key=_order)
            if denies is not None:
                return Rule(False, denies)
            allowed = allows or allowed
        return DEFAULT_DENY if allowed is None else Rule(True, allowed)

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
        for acl in self._sections.get(resource_type, _EMPTY).all():
            applies = acl.kafka_principal in (principal, ALL_USERS) and _matches(acl.host, host)
            if not applies or acl.operation not in (operation, Operation.ALL):
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


def _order(acl: Acl) -> tuple[Operation, str, str]:
    """Return the place of an ACL among those of its resource and permission (Kafka's `StandardAcl`)."""
    return acl.operation, acl.principal, acl.host


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
