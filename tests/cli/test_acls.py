"""`konvene acls`, `konvene delegation-tokens`, and `konvene configs` for users: output as Kafka's tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from tests.cli.commands import call
from tests.cli.secured import SecuredBroker, secured_broker

TOPIC = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
PREFIX = "ResourcePattern(resourceType=GROUP, name=or, patternType=PREFIXED)"
READ = "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)"
DESCRIBE = "(principal=User:bob, host=*, operation=DESCRIBE, permissionType=ALLOW)"


@pytest.fixture(scope="module")
def module_broker() -> Iterator[SecuredBroker]:
    with secured_broker() as broker:
        yield broker


@pytest.fixture
def broker(module_broker: SecuredBroker) -> Iterator[SecuredBroker]:
    """The broker of the module, without ACLs after each test."""
    yield module_broker
    for kind in ("--topic=orders", "--topic=o", "--group=billing", "--cluster", "--transactional-id=t"):
        module_broker.run("acls", "remove", "--force", kind, "--resource-pattern-type", "literal")
    for kind in ("--group=or", "--topic=or"):
        module_broker.run("acls", "remove", "--force", kind, "--resource-pattern-type", "prefixed")


def test_acls_are_added_listed_and_removed(broker: SecuredBroker) -> None:
    add = ("acls", "add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "orders")
    assert broker.run(*add).out == f"Adding ACLs for resource `{TOPIC}`: \n \t{READ}\n\n"
    assert broker.run(*add).out == f"Acl (pattern={TOPIC}, entry={READ}) already exists.\n"
    listed = broker.run("acls", "list", "--topic", "orders")
    assert listed.out == f"Current ACLs for resource `{TOPIC}`:\n\t{READ}\n\n"
    by_principal = broker.run("acls", "list", "--principal", "User:bob", "--principal", "User:x")
    assert by_principal.out == (
        f"ACLs for principal `User:bob`\nCurrent ACLs for resource `{TOPIC}`:\n\t{READ}\n\n"
        "ACLs for principal `User:x`\n"
    )
    question = f"Are you sure you want to delete all ACLs for resource filter `{TOPIC}`? (y/n)\n"
    assert broker.run("acls", "remove", "--topic", "orders", stdin="n\n").out == question
    assert broker.run("acls", "list", "--topic", "orders").out == listed.out
    remove = ("acls", "remove", "--allow-principal", "User:bob", "--operation", "read", "--topic", "orders")
    question = f"Are you sure you want to remove ACLs: \n \t{READ}\n from resource filter `{TOPIC}`? (y/n)\n"
    assert broker.run(*remove, stdin="Y\n").out == question
    assert broker.run("acls", "list", "--topic", "orders").out == ""
    assert broker.call(*remove, stdin="").code == 1


def test_the_options_for_consumers_and_producers(broker: SecuredBroker) -> None:
    consumer = ("--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "billing")
    broker.run("acls", "add", *consumer)
    producer = ("--allow-principal", "User:bob", "--producer", "--idempotent", "--topic", "orders",
                "--transactional-id", "t")  # fmt: skip
    broker.run("acls", "add", *producer)
    found = broker.run("acls", "list", "--principal", "User:bob", "--json").json
    assert {(row["resource_type"], row["operation"]) for row in found} == {
        ("TOPIC", "READ"), ("TOPIC", "DESCRIBE"), ("TOPIC", "WRITE"), ("TOPIC", "CREATE"),
        ("GROUP", "READ"), ("TRANSACTIONAL_ID", "WRITE"), ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }  # fmt: skip
    assert broker.run("acls", "remove", "--force", "--json", *consumer).json == {"removed": 3}


def test_patterns_and_hosts(broker: SecuredBroker) -> None:
    broker.run(
        "acls", "add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.0/8", "--operation", "Describe",
        "--group", "or", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    denied = "(principal=User:bob, host=10.0.0.0/8, operation=DESCRIBE, permissionType=DENY)"
    expected = f"Current ACLs for resource `{PREFIX}`:\n\t{denied}\n\n"
    assert broker.run("acls", "list", "--group", "orders", "--resource-pattern-type", "match").out == expected
    assert broker.run("acls", "list", "--group", "orders").out == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["add", "--allow-principal", "User:a"], "You must provide at least one resource"),
        (["add", "--topic", "t"], "You must specify one of: --allow-principal, --deny-principal"),
        (["add", "--topic", "t", "--allow-principal", "a"], "principalType:principalName but got a"),
        (["add", "--topic", "t", "--allow-principal", "User:a", "--resource-pattern-type", "match"],
         "'MATCH' is not valid when adding acls."),
        (["add", "--group", "g", "--allow-principal", "User:a", "--operation", "Write"],
         "ResourceType GROUP only supports operations [READ, DESCRIBE, DELETE,"),
        (["add", "--producer", "--allow-principal", "User:a", "--group", "g"], "With --producer you must"),
        (["add", "--consumer", "--allow-principal", "User:a", "--topic", "t"], "With --consumer you must"),
        (["add", "--idempotent", "--allow-principal", "User:a", "--topic", "t"], "only available if"),
        (["add", "--producer", "--topic", "t", "--operation", "Read", "--allow-principal", "User:a"],
         "Option --producer can't be used with option --operation."),
        (["list", "--principal", "a"], "principalType:principalName but got a"),
    ],
)  # fmt: skip
def test_options_that_kafkas_tool_rejects(args: Sequence[str], message: str) -> None:
    result = call(None, "acls", *args)
    assert result.code == 2
    assert message in result.err.replace("\n", " ")


def test_defaults_of_a_profile_select_no_resources(
    broker: SecuredBroker, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default topic must not widen what is removed, nor conflict with the entities of configs."""
    (tmp_path / "config.toml").write_text('[defaults]\ntopic = "orders"\ngroup = "billing"\n')  # type: ignore[operator]
    monkeypatch.setenv("KONVENE_CONFIG", str(tmp_path / "config.toml"))  # type: ignore[operator]
    broker.run("acls", "add", "--allow-principal", "User:bob", "--topic", "orders")
    broker.run("acls", "add", "--allow-principal", "User:bob", "--cluster")
    broker.run("acls", "remove", "--force", "--cluster")
    assert [row["name"] for row in broker.run("acls", "list", "--principal", "User:bob", "--json").json] == [
        "orders"
    ]
    broker.run("configs", "describe", "--entity-type", "users")


# users, clients and IP addresses


def test_scram_credentials(module_broker: SecuredBroker) -> None:
    broker = module_broker
    alter = ("configs", "alter", "--entity-type", "users", "--entity-name", "dora")
    added = "SCRAM-SHA-512=[iterations=8192,password=a,b=c],SCRAM-SHA-256=[password=marked-new]"
    assert broker.run(*alter, "--add-config", added).out == "Completed updating config for user dora.\n"
    described = broker.run("configs", "describe", "--user", "dora")
    assert described.out == (
        "SCRAM credential configs for user-principal 'dora' are "
        "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192\n"
    )
    assert broker.run("configs", "describe", "--entity-type", "users").out == described.out
    assert broker.run("configs", "describe", "--user", "nobody").out == ""
    again = broker.run(*alter, "--add-config", "SCRAM-SHA-256=[password=marked-new]", "--json")
    assert again.json == {
        "entity": {"user": "dora"},
        "added": {"SCRAM-SHA-256": {"iterations": 4096, "password": "[hidden]"}},
        "deleted": [],
    }
    broker.run(*alter, "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    assert broker.run("configs", "describe", "--user", "dora").out == ""
    missing = broker.call(*alter, "--delete-config", "SCRAM-SHA-256")
    assert (missing.code, "RESOURCE_NOT_FOUND" in missing.err) == (1, True)


def test_client_quotas(module_broker: SecuredBroker) -> None:
    broker = module_broker
    alter = ("configs", "alter")
    user = broker.run(
        *alter, "--user", "eve", "--add-config", "producer_byte_rate=1024,request_percentage=20.5"
    )
    assert user.out == "Completed updating config for user eve.\n"
    broker.run(
        *alter, "--entity-type", "clients", "--entity-default", "--entity-type", "users",
        "--entity-name", "eve", "--add-config", "consumer_byte_rate=10000000",
    )  # fmt: skip
    default = broker.run(*alter, "--client-defaults", "--add-config", "controller_mutation_rate=5")
    assert default.out == "Completed updating default config for clients in the cluster.\n"
    broker.run(*alter, "--ip", "10.0.0.1", "--add-config", "connection_creation_rate=7")
    assert broker.run("configs", "describe", "--user", "eve").out == (
        "Quota configs for user-principal 'eve' are producer_byte_rate=1024.0, request_percentage=20.5\n"
    )
    both = ("configs", "describe", "--entity-type", "users", "--entity-type", "clients")
    assert broker.run(*both).out == (
        "Quota configs for user-principal 'eve', the default client-id are consumer_byte_rate=1.0E7\n"
    )
    assert broker.run("configs", "describe", "--client-defaults").out == (
        "Quota configs for the default client-id are controller_mutation_rate=5.0\n"
    )
    assert broker.run("configs", "describe", "--entity-type", "ips", "--json").json == [
        {"entity": {"ip": "10.0.0.1"}, "quotas": {"connection_creation_rate": 7.0}}
    ]
    broker.run(*alter, "--user", "eve", "--delete-config", "producer_byte_rate,request_percentage")
    assert broker.run("configs", "describe", "--user", "eve").out == ""
    missing = broker.call(*alter, "--user", "eve", "--delete-config", "producer_byte_rate")
    assert (missing.code, missing.err) == (
        1,
        "konvene: producer_byte_rate: not set on user-principal 'eve', so it cannot be deleted\n",
    )


# delegation tokens


def test_delegation_tokens(module_broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = module_broker
    created = broker.run("delegation-tokens", "create", "--renewer-principal", "User:bob")
    lines = created.out.splitlines()
    assert lines[0] == ("Calling create token operation with renewers :[User:bob] , max-life-time-period :-1")
    token_id = lines[1].removeprefix("Created delegation token with tokenId : ")
    assert lines[3].split() == ["TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE",
                                "EXPIRYDATE", "MAXDATE"]  # fmt: skip
    row = lines[5].split()
    assert (row[0], row[2:5]) == (token_id, ["User:alice", "User:alice", "[User:bob]"])
    described = broker.run("delegation-tokens", "describe", "--json").json
    assert [(each["token_id"], each["hmac"]) for each in described] == [(token_id, row[1])]
    monkeypatch.setenv("KONVENE_DELEGATION_TOKEN_HMAC", row[1])
    renewed = broker.run("delegation-tokens", "renew", "--renew-time-period", "60000", user="bob")
    assert renewed.out.startswith("Completed renew operation. New expiry date : ")
    monkeypatch.delenv("KONVENE_DELEGATION_TOKEN_HMAC")
    expired = broker.run("delegation-tokens", "expire", "--hmac", "-", "--json", stdin=row[1])
    assert list(json.loads(expired.out)) == ["expiry_ms"]
    nothing = broker.run("delegation-tokens", "describe", "--owner-principal", "User:alice")
    assert nothing.out.startswith(
        "Calling describe token operation for owners: [User:alice]\nTotal number of tokens : 0\n"
    )
    bad = broker.call("delegation-tokens", "expire", "--hmac", "marked hmac")
    assert (bad.code, bad.err.splitlines()[0]) == (1, "konvene: --hmac is not in base64")
