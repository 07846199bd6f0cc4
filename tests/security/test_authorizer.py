"""The authorizer: Kafka's cases, and random questions against a plain evaluation of the rules."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konvene.security.acls import Acl, AclFilter, PatternType, PermissionType
from konvene.security.authorizer import AUDIT_LOG, TRACE, StandardAuthorizer, parse_super_users
from konvene.security.hosts import is_in_range
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import CLUSTER, Operation, Resource, ResourceType, group, topic

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
HOST = "10.0.0.1"
READ, WRITE, ALTER, DESCRIBE, ALL = (
    Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DESCRIBE, Operation.ALL
)  # fmt: skip
PREFIXED = PatternType.PREFIXED


def acl(
    name: str = "foo",
    operation: Operation = READ,
    principal: str = "User:alice",
    host: str = "*",
    *,
    pattern: PatternType = PatternType.LITERAL,
    denies: bool = False,
    type: ResourceType = ResourceType.TOPIC,
) -> Acl:
    permission = PermissionType.DENY if denies else PermissionType.ALLOW
    return Acl(type, name, pattern, principal, host, operation, permission)


def allows(
    acls: list[Acl],
    operation: Operation = READ,
    name: str = "foo",
    user: KafkaPrincipal = ALICE,
    host: str = HOST,
) -> bool:
    return StandardAuthorizer(acls).find_rule(user, host, operation, topic(name)).allows


def test_without_acls_everything_is_denied() -> None:
    assert not allows([])


def test_a_literal_acl_is_for_its_resource_operation_and_user() -> None:
    acls = [acl()]
    assert allows(acls)
    assert not allows(acls, name="foob")
    assert not allows(acls, name="fo")
    assert not allows(acls, WRITE)
    assert not allows(acls, user=BOB)
    assert not StandardAuthorizer(acls).find_rule(ALICE, HOST, READ, group("foo")).allows


def test_prefixes_and_wildcards() -> None:
    assert allows([acl("fo", pattern=PREFIXED)])
    assert allows([acl("foo", pattern=PREFIXED)])
    assert not allows([acl("foob", pattern=PREFIXED)])
    assert allows([acl("*")])
    assert not allows([acl("*", pattern=PREFIXED)])
    assert allows([acl("*", pattern=PREFIXED)], name="*a")
    assert allows([acl("", pattern=PREFIXED)])
    assert not allows([acl("")])


def test_a_denial_wins() -> None:
    for denied in (acl(denies=True), acl("f", pattern=PREFIXED, denies=True), acl("*", denies=True)):
        for allowed in (acl(), acl("fo", pattern=PREFIXED), acl("*"), acl(operation=ALL)):
            assert not allows([allowed, denied])
            assert not allows([denied, allowed])
    assert not allows([acl(), acl(principal="User:*", denies=True)])
    assert allows([acl(), acl(operation=WRITE, denies=True)])
    assert not allows([acl(), acl(operation=ALL, denies=True)])
    assert allows([acl(), acl(host="10.0.0.2", denies=True)])


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, ALTER, DESCRIBE, ALL])
def test_operations_that_imply_describe(operation: Operation) -> None:
    assert allows([acl(operation=operation)], DESCRIBE)
    denied = [acl(operation=ALL), acl(operation=operation, denies=True)]
    assert allows(denied, DESCRIBE) is (operation not in (DESCRIBE, ALL))


def test_operations_that_imply_nothing() -> None:
    assert not allows([acl(operation=Operation.CREATE)], DESCRIBE)
    assert allows([acl(operation=Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not allows([acl(operation=ALTER)], Operation.DESCRIBE_CONFIGS)
    assert not allows([acl(operation=DESCRIBE)], READ)


def test_hosts() -> None:
    assert allows([acl(host=HOST)])
    assert not allows([acl(host="10.0.0.2")])
    assert allows([acl(host="10.0.0.0/24")])
    assert not allows([acl(host="10.1.0.0/24")])
    assert allows([acl(host="0:0:0:0:0:0:0:1")], host="::1")
    assert not allows([acl(host="::1")], host="::1")
    assert allows([acl(host="10.0.0.1")], host="::ffff:10.0.0.1")


def test_all_users_are_users() -> None:
    assert allows([acl(principal="User:*")])
    assert not allows([acl(principal="Group:*")])
    assert allows([acl(principal="User:*")], user=KafkaPrincipal("Other", "x"))
    assert not allows([acl(principal="User:alice")], user=KafkaPrincipal("Other", "alice"))


def test_super_users_may_do_anything() -> None:
    authorizer = StandardAuthorizer(
        [acl("*", ALL, "User:*", denies=True)], parse_super_users("User:alice; User:x")
    )
    assert authorizer.find_rule(ALICE, HOST, ALTER, CLUSTER).allows
    assert not authorizer.find_rule(BOB, HOST, READ, topic("foo")).allows
    assert authorizer.authorize_by_resource_type(ALICE, HOST, WRITE, ResourceType.TOPIC)
    for text in ("alice", "User:a;b"):
        with pytest.raises(ValueError, match="principalType:principalName"):
            parse_super_users(text)
    assert parse_super_users("") == parse_super_users(" ; ") == frozenset()


def test_resources_without_acls_may_be_open() -> None:
    authorizer = StandardAuthorizer([acl(principal="User:bob")], allows_everyone=True)
    assert authorizer.find_rule(ALICE, HOST, READ, topic("bar")).allows
    assert not authorizer.find_rule(ALICE, HOST, READ, topic("foo")).allows
    assert not authorizer.find_rule(BOB, HOST, WRITE, topic("foo")).allows


def test_any_resource_of_a_type() -> None:
    def any_write(*acls: Acl) -> bool:
        return StandardAuthorizer(acls).authorize_by_resource_type(ALICE, HOST, WRITE, ResourceType.TOPIC)

    write, prefix = acl(operation=WRITE), acl("fo", WRITE, pattern=PREFIXED)
    assert not any_write()
    assert any_write(write)
    assert any_write(prefix)
    assert any_write(acl(operation=ALL))
    assert not any_write(write, acl(operation=WRITE, denies=True))
    assert not any_write(write, acl("f", ALL, "User:*", pattern=PREFIXED, denies=True))
    assert any_write(write, acl("bar", WRITE, denies=True))
    assert any_write(prefix, acl("fo", WRITE, denies=True))
    assert not any_write(prefix, acl("*", WRITE, denies=True))
    assert any_write(acl("*", WRITE), write)
    assert not any_write(acl(operation=WRITE, type=ResourceType.GROUP))
    assert not any_write(acl(operation=WRITE, host="10.0.0.2"))


def test_acls_are_added_and_removed() -> None:
    """The earlier value does not change."""
    first = StandardAuthorizer([acl(), acl("p", pattern=PREFIXED)])
    second = first.with_acls([acl("bar")], [acl()])
    assert {a.resource_name for a in first.acls(AclFilter())} == {"foo", "p"}
    assert {a.resource_name for a in second.acls(AclFilter())} == {"bar", "p"}
    assert set(second.with_acls(removed=second.acls(AclFilter())).acls(AclFilter())) == set()
    assert repr(second) == "<standard authorizer: 2 ACLs>"


def test_the_audit_has_kafkas_line(caplog: pytest.LogCaptureFixture) -> None:
    """A denial at INFO, a grant at DEBUG; filters below both."""
    authorizer = StandardAuthorizer([acl()], parse_super_users("User:bob"))
    with caplog.at_level(logging.DEBUG, AUDIT_LOG):
        authorizer.authorize(ALICE, HOST, WRITE, topic("foo"), api_key=0)
        authorizer.authorize(ALICE, "::1", READ, topic("foo"), api_key=1)
        authorizer.authorize(BOB, HOST, ALTER, CLUSTER, api_key=30)
        authorizer.authorize(ALICE, HOST, WRITE, topic("foo"), logs_denied=False)
    assert [(r.levelname, r.message) for r in caplog.records] == [
        (
            "INFO",
            "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource ="
            " Topic:LITERAL:foo for request = Produce with resourceRefCount = 1 based on rule DefaultDeny",
        ),
        (
            "DEBUG",
            "Principal = User:alice is Allowed operation = READ from host = 0:0:0:0:0:0:0:1 on resource ="
            " Topic:LITERAL:foo for request = Fetch with resourceRefCount = 1 based on rule"
            " MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=foo, patternType=LITERAL,"
            " principal=User:alice, host=*, operation=READ, permissionType=ALLOW])",
        ),
        (
            "DEBUG",
            "Principal = User:bob is Allowed operation = ALTER from host = 10.0.0.1 on resource ="
            " Cluster:LITERAL:kafka-cluster for request = CreateAcls with resourceRefCount = 1 based on rule"
            " SuperUser",
        ),
    ]


def test_the_audit_names_the_acl_that_kafka_names() -> None:
    """The first that denies and the last that allows: by name, then prefixes from the longest, then `*`."""
    allowing = [
        acl("*"),
        acl("fo", pattern=PREFIXED),
        acl("foo", pattern=PREFIXED),
        acl(operation=ALL),
        acl(principal="User:*"),
        acl(host=HOST),
    ]
    denying = [one._replace(permission_type=PermissionType.DENY) for one in allowing]
    order = [3, 4, 5, 2, 1, 0]
    for reversed_ in (False, True):
        for count in range(1, len(order) + 1):
            first, last = order[-count:], order[:count]
            if reversed_:
                first, last = first[::-1], last[::-1]
            denied = StandardAuthorizer([denying[i] for i in first])
            assert denied.find_rule(ALICE, HOST, READ, topic("foo")).acl == denying[order[-count]]
            allowed = StandardAuthorizer([allowing[i] for i in last])
            assert allowed.find_rule(ALICE, HOST, READ, topic("foo")).acl == allowing[order[count - 1]]


def test_the_audit_of_a_question_about_any_resource(caplog: pytest.LogCaptureFixture) -> None:
    """It has the check of a resource that no ACL names, and nothing at INFO."""
    authorizer = StandardAuthorizer([acl()], parse_super_users("User:bob"))
    with caplog.at_level(TRACE, AUDIT_LOG):
        for user in (BOB, ALICE):
            authorizer.authorize_by_resource_type(user, HOST, WRITE, ResourceType.TOPIC, api_key=22)
    assert [(r.levelno, r.message) for r in caplog.records] == [
        (
            level,
            f"Principal = {user} operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:hardcode"
            f" for request = InitProducerId with resourceRefCount = 0 based on rule {rule}",
        )
        for level, user, rule in (
            (logging.DEBUG, "User:bob is Allowed", "SuperUser"),
            (TRACE, "User:alice is Denied", "DefaultDeny"),
        )
    ]


def test_all_resources_are_not_those_whose_names_begin_with_an_asterisk() -> None:
    """As in Kafka 4.4, an ACL of `*` is not for the resource `*a`, whether it allows or denies."""
    assert allows([acl("*")], name="*")
    assert not allows([acl("*")], name="*a")
    assert allows([acl("*", denies=True), acl("*a")], name="*a")


# --- random questions ---

NAMES = st.sampled_from(["", "*", "f", "fo", "foo", "foob", "b", "*f"])
USERS = st.sampled_from(["User:alice", "User:bob", "User:*", "Other:alice"])
HOSTS = st.sampled_from(["*", HOST, "10.0.0.2", "10.0.0.0/30", "0.0.0.0/0", "0:0:0:0:0:0:0:1", "::/0"])
OPERATIONS = st.sampled_from(
    [ALL, READ, WRITE, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.CREATE]
)
ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PREFIXED]),
    USERS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)


def plainly(
    acls: list[Acl], user: KafkaPrincipal, host: str, operation: Operation, resource: Resource
) -> bool:
    """Return the answer of Kafka's rules, ACL by ACL."""

    def is_named(a: Acl) -> bool:
        if a.resource_type is not resource.type:
            return False
        if a.pattern_type is PREFIXED:
            return resource.name.startswith(a.resource_name)
        if a.resource_name == "*" and resource.name.startswith("*"):
            return resource.name == "*"  # Kafka does not apply ACLs of `*` to a name such as `*f`.
        return a.resource_name in ("*", resource.name)

    def implies(a: Acl) -> bool:
        if a.operation in (ALL, operation):
            return True
        if a.permission_type is PermissionType.DENY:
            return False
        describing = operation is DESCRIBE and a.operation in (READ, WRITE, Operation.DELETE, ALTER)
        return describing or (
            operation is Operation.DESCRIBE_CONFIGS and a.operation is Operation.ALTER_CONFIGS
        )

    matching = [
        a
        for a in acls
        if is_named(a)
        and a.principal in (str(user), "User:*")
        and (a.host in ("*", host) or is_in_range(host, a.host))
        and implies(a)
    ]
    permissions = {a.permission_type for a in matching}
    return PermissionType.DENY not in permissions and PermissionType.ALLOW in permissions


@settings(max_examples=300)
@given(st.lists(ACLS, max_size=6), st.lists(ACLS, max_size=3), st.data())
def test_random_questions(acls: list[Acl], removed: list[Acl], data: st.DataObject) -> None:
    authorizer = StandardAuthorizer([*acls, *removed]).with_acls(removed=removed)
    left = [a for a in acls if a not in removed]
    user = data.draw(st.sampled_from([ALICE, BOB, KafkaPrincipal("Other", "alice")]))
    host = data.draw(st.sampled_from([HOST, "10.0.0.9", "0:0:0:0:0:0:0:1"]))
    operation = data.draw(OPERATIONS.filter(lambda o: o is not ALL))
    resource = Resource(
        data.draw(st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])), data.draw(NAMES)
    )
    expected = plainly(left, user, host, operation, resource)
    assert authorizer.find_rule(user, host, operation, resource).allows is expected
