"""`konvene acls`: list, add and remove ACLs, with the options and the output of `kafka-acls`.

As in Kafka's tool, an added ACL that exists is reported and left, and removing asks first unless --force is
given. ACLs are printed in a fixed order; Kafka's tool has none."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from konvene.cli.name_completion import complete_groups, complete_topics, complete_transactional_ids
from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import print_json, text_of
from konvene.cli.positional import explicit

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.security.acls import Acl, AclFilter
    from konvene.security.resources import Operation

F = TypeVar("F", bound=Callable[..., object])

PATTERN_TYPES = ("any", "match", "literal", "prefixed")
OPERATIONS = (
    "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs",
    "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens", "TwoPhaseCommit",
)  # fmt: skip
CONSUMER_OPERATIONS = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
PRODUCER_OPERATIONS = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
"""Operations of the convenience options, by type of resource."""


class Pattern(NamedTuple):
    """A resource pattern, or a filter of them, as Kafka's tool prints it."""

    resource_type: str
    name: str
    pattern_type: str

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type}, name={self.name},"
            f" patternType={self.pattern_type})"
        )


class Entry(NamedTuple):
    """Who may, or may not, do what from where: an access control entry, as Kafka's tool prints it."""

    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation},"
            f" permissionType={self.permission})"
        )


class Resources(NamedTuple):
    """The options that select resources."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    is_cluster: bool
    transactional_ids: tuple[str, ...]
    tokens: tuple[str, ...]
    users: tuple[str, ...]
    pattern_type: str

    def patterns(self, *, with_cluster: bool = False) -> list[Pattern]:
        """Return the selected patterns; `with_cluster` adds the cluster."""
        kind = self.pattern_type.upper()
        found = [Pattern("TOPIC", name.strip(), kind) for name in self.topics]
        if kind == "LITERAL" and (self.is_cluster or with_cluster):
            found.append(CLUSTER)
        found += [Pattern("GROUP", name.strip(), kind) for name in self.groups]
        found += [Pattern("TRANSACTIONAL_ID", name, kind) for name in self.transactional_ids]
        found += [Pattern("DELEGATION_TOKEN", name.strip(), kind) for name in self.tokens]
        found += [Pattern("USER", name.strip(), kind) for name in self.users]
        return list(dict.fromkeys(found))


CLUSTER = Pattern("CLUSTER", "kafka-cluster", "LITERAL")


class Entries(NamedTuple):
    """The options that describe ACLs: principals, hosts, operations."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    denied_hosts: tuple[str, ...]
    operations: tuple[str, ...]
    is_producer: bool
    is_consumer: bool
    is_idempotent: bool

    def of(self, operations: Iterable[str]) -> list[Entry]:
        """Return the ACLs for some operations; hosts are `*` where none is given."""
        found = []
        for permission, principals, hosts in (
            ("ALLOW", self.allowed, self.allowed_hosts),
            ("DENY", self.denied, self.denied_hosts),
        ):
            for principal in principals:
                for operation in operations:
                    for host in hosts or ("*",):
                        found.append(Entry(principal.strip(), host.strip(), operation, permission))
        return list(dict.fromkeys(found))


@click.group()
def acls() -> None:
    """List, add and remove ACLs.

    \b
    konvene acls add --allow-principal User:alice --operation Read --topic orders
    konvene acls add --allow-principal User:alice --consumer --topic orders --group billing
    konvene acls list --topic orders
    konvene acls remove --topic orders --force
    """


def _resource_options(command: F) -> F:
    """Add the options that select resources, passed as the parameter `resources`."""

    @functools.wraps(command)
    def wrapped(*args: object, **options: Any) -> object:
        given = {name: options.pop(name) for name in Resources._fields}
        for name in ("topics", "groups", "transactional_ids"):  # Defaults are for other commands.
            given[name] = given[name] if explicit(name) else ()
        resources = Resources(**given)
        return command(*args, resources=resources, **options)

    decorated: Any = wrapped
    for option in (
        click.option("--resource-pattern-type", "pattern_type", default="literal", show_default=True,
                     type=click.Choice(PATTERN_TYPES, case_sensitive=False),
                     help="How names select resources; any and match only for listing and removing."),
        click.option("--user-principal", "users", multiple=True, metavar="USER",
                     help="Users as resources, of CreateTokens and DescribeTokens; may be repeated."),
        click.option("--delegation-token", "tokens", multiple=True, metavar="ID",
                     help="Delegation tokens; may be repeated."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID",
                     shell_complete=complete_transactional_ids,
                     help="Transactional ids, * for all; may be repeated."),
        click.option("--cluster", "is_cluster", is_flag=True, help="The cluster."),
        click.option("--group", "groups", multiple=True, metavar="GROUP", shell_complete=complete_groups,
                     help="Groups, * for all; may be repeated."),
        click.option("--topic", "topics", multiple=True, metavar="TOPIC", shell_complete=complete_topics,
                     help="Topics, * for all; may be repeated."),
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _entry_options(command: F) -> F:
    """Add the options that describe ACLs, passed as the parameter `entries`."""

    @functools.wraps(command)
    def wrapped(*args: object, **options: Any) -> object:
        entries = Entries(**{name: options.pop(name) for name in Entries._fields})
        return command(*args, entries=entries, **options)

    decorated: Any = wrapped
    for option in (
        click.option("--idempotent", "is_idempotent", is_flag=True,
                     help="With --producer: IdempotentWrite on the cluster as well."),
        click.option("--consumer", "is_consumer", is_flag=True,
                     help="Read and Describe on the topics, Read on the groups."),
        click.option("--producer", "is_producer", is_flag=True,
                     help="Write, Describe and Create on the topics, Write and Describe on the "
                     "transactional ids."),
        click.option("--operation", "operations", multiple=True,
                     type=click.Choice(OPERATIONS, case_sensitive=False),
                     help="Operations; may be repeated [default: All]."),
        click.option("--deny-host", "denied_hosts", multiple=True, metavar="HOST",
                     help="Hosts or CIDR ranges of the denied principals [default: *]."),
        click.option("--allow-host", "allowed_hosts", multiple=True, metavar="HOST",
                     help="Hosts or CIDR ranges of the allowed principals [default: *]."),
        click.option("--deny-principal", "denied", multiple=True, metavar="TYPE:NAME",
                     help="Principals to deny, such as User:alice; may be repeated."),
        click.option("--allow-principal", "allowed", multiple=True, metavar="TYPE:NAME",
                     help="Principals to allow, such as User:alice or User:*; may be repeated."),
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@acls.command("list")
@cluster_options
@json_option
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME",
              help="Only ACLs of this principal; may be repeated.")  # fmt: skip
@_resource_options
def list_acls(connect: Connect, as_json: bool, principals: tuple[str, ...], resources: Resources) -> None:
    """List ACLs, of all resources or of some."""
    chosen = [_principal(each) for each in principals]

    async def job() -> list[Acl]:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            return await _matching(Admin(cluster), resources.patterns())

    found = run(job)
    if as_json:
        print_json([_document(acl) for acl in found if not chosen or acl.principal in chosen])
        return
    if not chosen:
        _print(found)
    for principal in chosen:
        click.echo(f"ACLs for principal `{text_of(principal)}`")
        _print([acl for acl in found if acl.principal == principal])


@acls.command()
@cluster_options
@json_option
@_entry_options
@_resource_options
def add(connect: Connect, as_json: bool, entries: Entries, resources: Resources) -> None:
    """Add ACLs to resources."""
    if resources.pattern_type not in ("literal", "prefixed"):
        raise click.UsageError(
            f"A '--resource-pattern-type' value of '{resources.pattern_type.upper()}' is not valid when"
            " adding acls."
        )
    wanted = _wanted(entries, resources)
    if not all(wanted.values()):
        raise click.UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )

    async def job() -> list[Acl]:
        from konvene.client.admin.admin import Admin

        added: list[Acl] = []
        async with connect() as cluster:
            admin = Admin(cluster)
            for pattern, rows in wanted.items():
                existing = {_entry(acl) for acl in await admin.describe_acls(_filter(pattern))}
                if not as_json:
                    for row in rows:
                        if row in existing:
                            click.echo(f"Acl (pattern={pattern}, entry={row}) already exists.")
                new = [row for row in rows if row not in existing]
                if not new:
                    continue
                if not as_json:
                    click.echo(f"Adding ACLs for resource `{pattern}`: \n {_rows(new)}\n")
                acls_of = [_acl(pattern, row) for row in new]
                await admin.create_acls(acls_of)
                added += acls_of
        return added

    added = run(job)
    if as_json:
        print_json({"added": [_document(acl) for acl in added]})


@acls.command()
@cluster_options
@json_option
@click.option("--force", is_flag=True, help="Do not ask.")
@_entry_options
@_resource_options
def remove(connect: Connect, as_json: bool, force: bool, entries: Entries, resources: Resources) -> None:
    """Remove ACLs of resources: those that are described, or all if no principal is given."""
    wanted = _wanted(entries, resources)
    filters: list[AclFilter] = []
    for pattern, rows in wanted.items():
        if rows:
            question = (
                f"Are you sure you want to remove ACLs: \n {_rows(rows)}\n"
                f" from resource filter `{pattern}`? (y/n)"
            )
            selected = [_filter(pattern, row) for row in rows]
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
            selected = [_filter(pattern)]
        if force or _confirmed(question, to_stderr=as_json):
            filters += selected

    async def job() -> int:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            return await Admin(cluster).delete_acls(filters) if filters else 0

    removed = run(job)
    if as_json:
        print_json({"removed": removed})


# arguments ------------------------------------------------------------------------------------


def _wanted(entries: Entries, resources: Resources) -> dict[Pattern, list[Entry]]:
    """Return the described ACLs of each selected resource. Raises UsageError."""
    _check(entries, resources)
    patterns = resources.patterns(with_cluster=entries.is_idempotent)
    if not patterns:
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or"
            " --delegation-token <Delegation Token ID>"
        )
    found: dict[Pattern, list[Entry]] = {}
    if not entries.is_producer and not entries.is_consumer:
        operations = [_operation(name).name for name in entries.operations or ("All",)]
        found = {pattern: entries.of(operations) for pattern in patterns}
    for is_given, by_type in (
        (entries.is_producer, PRODUCER_OPERATIONS),
        (entries.is_consumer, CONSUMER_OPERATIONS),
    ):
        for pattern in patterns if is_given else ():
            if pattern.resource_type in by_type:
                rows = entries.of(by_type[pattern.resource_type])
                found[pattern] = list(dict.fromkeys([*found.get(pattern, ()), *rows]))
    if entries.is_producer and entries.is_idempotent:
        found[CLUSTER] = entries.of(["IDEMPOTENT_WRITE"])
    for pattern, rows in found.items():
        _check_operations(pattern, rows)
    return found


def _check(entries: Entries, resources: Resources) -> None:
    """Raise UsageError for options that Kafka's tool does not combine."""
    for principal in (*entries.allowed, *entries.denied):
        _principal(principal)
    if entries.is_producer or entries.is_consumer:
        option = "--producer" if entries.is_producer else "--consumer"
        for name, given in (
            ("--operation", entries.operations),
            ("--deny-principal", entries.denied),
            ("--deny-host", entries.denied_hosts),
        ):
            if given:
                raise click.UsageError(f"Option {option} can't be used with option {name}.")
    if entries.is_producer and not resources.topics:
        raise click.UsageError("With --producer you must specify a --topic")
    if entries.is_idempotent and not entries.is_producer:
        raise click.UsageError("The --idempotent option is only available if --producer is set")
    is_other = resources.is_cluster or resources.transactional_ids
    if entries.is_consumer and (
        not resources.topics or not resources.groups or (not entries.is_producer and is_other)
    ):
        raise click.UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id"
            " option should be specified."
        )


def _check_operations(pattern: Pattern, rows: Sequence[Entry]) -> None:
    from konvene.security.resources import SUPPORTED_OPERATIONS, Operation, ResourceType

    supported = (*SUPPORTED_OPERATIONS[ResourceType[pattern.resource_type]], Operation.ALL)
    if any(Operation[row.operation] not in supported for row in rows):
        names = ", ".join(operation.name for operation in supported)
        raise click.UsageError(f"ResourceType {pattern.resource_type} only supports operations [{names}]")


def _operation(name: str) -> Operation:
    """Return the operation of a name such as `DescribeConfigs`."""
    from konvene.security.resources import Operation

    return next(each for each in Operation if each.name.replace("_", "").lower() == name.lower())


def _principal(text: str) -> str:
    from konvene.security.principal import parse_principal

    try:
        return str(parse_principal(text.strip()))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _confirmed(question: str, *, to_stderr: bool) -> bool:
    """Ask, and return True for the answer y. Fails if there is no terminal or input to answer."""
    click.echo(question, err=to_stderr)
    answer = sys.stdin.readline()
    if not answer:
        fail("there is no answer on standard input", "--force removes without asking.")
    return answer.strip().lower() == "y"


# requests and output --------------------------------------------------------------------------


async def _matching(admin: Admin, patterns: Sequence[Pattern]) -> list[Acl]:
    """Return the ACLs of the patterns, all ACLs without any, each once."""
    filters: list[AclFilter | None] = [_filter(pattern) for pattern in patterns]
    filters = filters or [None]
    return sorted({acl for each in filters for acl in await admin.describe_acls(each)})


def _filter(pattern: Pattern, entry: Entry | None = None) -> AclFilter:
    from konvene.security.acls import AclFilter, PatternType, PermissionType
    from konvene.security.resources import Operation, ResourceType

    found = AclFilter(ResourceType[pattern.resource_type], pattern.name, PatternType[pattern.pattern_type])
    if entry is None:
        return found
    return found._replace(
        principal=entry.principal, host=entry.host, operation=Operation[entry.operation],
        permission_type=PermissionType[entry.permission],
    )  # fmt: skip


def _acl(pattern: Pattern, entry: Entry) -> Acl:
    from konvene.security.acls import Acl, PatternType, PermissionType
    from konvene.security.resources import Operation, ResourceType

    return Acl(
        ResourceType[pattern.resource_type], pattern.name, PatternType[pattern.pattern_type],
        entry.principal, entry.host, Operation[entry.operation], PermissionType[entry.permission],
    )  # fmt: skip


def _pattern(acl: Acl) -> Pattern:
    return Pattern(acl.resource_type.name, acl.resource_name, acl.pattern_type.name)


def _entry(acl: Acl) -> Entry:
    return Entry(acl.principal, acl.host, acl.operation.name, acl.permission_type.name)


def _rows(entries: Iterable[Entry]) -> str:
    return "\n".join(f"\t{text_of(str(entry))}" for entry in entries)


def _print(found: Iterable[Acl]) -> None:
    """Print ACLs by resource, as Kafka's tool."""
    by_pattern: dict[Pattern, list[Entry]] = {}
    for acl in found:
        by_pattern.setdefault(_pattern(acl), []).append(_entry(acl))
    for pattern, entries in by_pattern.items():
        click.echo(f"Current ACLs for resource `{text_of(str(pattern))}`:\n{_rows(entries)}\n")


def _document(acl: Acl) -> dict[str, object]:
    return {
        "resource_type": acl.resource_type.name,
        "name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission_type": acl.permission_type.name,
    }
