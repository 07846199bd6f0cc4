"""Listeners with TLS and SASL: who is served, as which principal, and what ends a session."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.secured import SCRAM_MODULE, STANDARD_AUTHORIZER, Secured, login, plain, scram

from konvene.broker.net.sasl_connection import SaslConnection
from konvene.client import Cluster
from konvene.client.errors import AuthenticationFailed, ClientError
from konvene.client.net.authentication import reauthentication_delay_s
from konvene.client.security import ClientSecurity
from konvene.codec.compile import encode
from konvene.configs import ConfigError
from konvene.errors import Errors
from konvene.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from konvene.messages.create_acls import AclCreation, CreateAclsRequest
from konvene.messages.create_delegation_token import CreateDelegationTokenRequest
from konvene.messages.describe_cluster import DescribeClusterRequest
from konvene.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.metadata import MetadataRequest
from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.security.resources import Operation, operation_bits
from konvene.security.sasl.scram import MECHANISMS


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(limited())


async def send(client: Cluster, request: Any) -> Any:
    """Send a request on a connection of the client, which is closed afterwards."""
    async with client:
        connection = await client.any_node()
        return await connection.send(request)


def principals(secured: Secured) -> list[KafkaPrincipal]:
    return [connection.session.principal for connection in secured.broker.network.connections]


@pytest.mark.parametrize(
    ("listener", "properties", "principal"),
    [
        ("PLAINTEXT", {}, ANONYMOUS),
        ("TLS", {"security.protocol": "SSL"}, ANONYMOUS),
        ("SECURE", plain(), KafkaPrincipal("User", "alice")),
        ("SASL", plain("bob", protocol="SASL_PLAINTEXT"), KafkaPrincipal("User", "bob")),
    ],
)
def test_each_protocol_has_its_principal_and_address(
    tmp_path: Path, listener: str, properties: dict[str, str], principal: KafkaPrincipal
) -> None:
    """Metadata and FindCoordinator name the address of the listener that the client uses."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running():
            async with secured.client(listener, properties) as client:
                connection = await client.any_node()
                metadata = await connection.send(MetadataRequest(topics=()))
                found = await connection.send(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))
                assert principals(secured) == [principal]
            here = secured.address(listener)
            assert [f"{b.host}:{b.port}" for b in metadata.brokers] == [here]
            assert [f"{c.host}:{c.port}" for c in found.coordinators] == [here]

    run(scenario())


def test_a_client_certificate_names_the_principal(tmp_path: Path) -> None:
    """By the rules of the listener; a certificate of another authority is refused."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        rules = r"RULE:^CN=([^,]+),.*$/$1/L,DEFAULT"
        settings = secured.settings(ssl_principal_mapping_rules=rules)
        async with secured.running(settings):
            for subject, name in (("CN=Alice,O=example", "alice"), ("CN=Bob", "CN=Bob")):
                material = secured.authority.client(subject)
                own = {
                    "security.protocol": "SSL",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": material.key,
                    "ssl.keystore.certificate.chain": material.certificate,
                }
                async with secured.client("TLS", own) as client:
                    await client.any_node()
                    assert principals(secured) == [KafkaPrincipal("User", name)]
            (tmp_path / "other").mkdir()
            foreign = Secured(tmp_path / "other").authority.client("CN=Alice,O=example")
            own |= {"ssl.keystore.key": foreign.key, "ssl.keystore.certificate.chain": foreign.certificate}
            with pytest.raises(ClientError):
                await send(secured.client("TLS", own), MetadataRequest(topics=()))

    run(scenario())


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret")])
def test_a_wrong_password_and_an_unknown_user_fail_alike(tmp_path: Path, user: str, password: str) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running():
            with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
                await send(secured.client("SECURE", plain(user, password)), MetadataRequest(topics=()))
            mechanism = "SCRAM-SHA-256"
            text = f"invalid credentials with SASL mechanism {mechanism}"
            with pytest.raises(AuthenticationFailed, match=text):
                await send(
                    secured.client("SECURE", scram(user, password, mechanism)), MetadataRequest(topics=())
                )

    run(scenario())


def salted(user: str, password: str, mechanism: str, iterations: int = 4_096) -> ScramCredentialUpsertion:
    import hashlib

    salt = b"salt" * 4
    function = MECHANISMS[mechanism]
    return ScramCredentialUpsertion(
        name=user, mechanism=list(MECHANISMS).index(mechanism) + 1, iterations=iterations, salt=salt,
        salted_password=hashlib.pbkdf2_hmac(function, password.encode(), salt, iterations),
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_credentials_are_set_and_survive_a_restart(tmp_path: Path, mechanism: str) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        login_of_carol = scram("carol", "pass, word=1", mechanism)
        async with secured.running():
            request = AlterUserScramCredentialsRequest(
                upsertions=(salted("carol", "pass, word=1", mechanism),)
            )
            response = await send(secured.client("SECURE", plain()), request)
            assert [(r.user, r.error_code) for r in response.results] == [("carol", Errors.NONE)]
            await send(secured.client("SECURE", login_of_carol), MetadataRequest(topics=()))
        async with secured.running():
            described = await send(
                secured.client("SECURE", login_of_carol), DescribeUserScramCredentialsRequest(users=None)
            )
            (result,) = described.results
            assert (result.user, [c.iterations for c in result.credential_infos]) == ("carol", [4_096])
            code = list(MECHANISMS).index(mechanism) + 1
            deletion = ScramCredentialDeletion(name="carol", mechanism=code)
            await send(
                secured.client("SECURE", plain()), AlterUserScramCredentialsRequest(deletions=(deletion,))
            )
            with pytest.raises(AuthenticationFailed):
                await send(secured.client("SECURE", login_of_carol), MetadataRequest(topics=()))

    run(scenario())


def test_a_delegation_token_logs_in_as_its_owner(tmp_path: Path) -> None:
    """With SCRAM; such a client gets no further tokens, nor does one on a plaintext listener."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running(secured.settings(delegation_token_secret_key="key")):
            request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
            created = await send(secured.client("SECURE", plain("bob")), request)
            assert created.error_code == Errors.NONE
            password = b64encode(created.hmac).decode()
            by_token = login(
                "SCRAM-SHA-512", SCRAM_MODULE, created.token_id, password, "SASL_SSL", ' tokenauth="true"'
            )
            async with secured.client("SECURE", by_token) as client:
                connection = await client.any_node()
                assert principals(secured) == [KafkaPrincipal("User", "bob")]
                again = await connection.send(request)
            assert again.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            plaintext = await send(secured.client("PLAINTEXT", {}), request)
            assert plaintext.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    run(scenario())


def test_acls_are_enforced_and_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        settings = secured.settings(super_users="User:alice") | {"authorizer.class.name": STANDARD_AUTHORIZER}
        describe = DescribeClusterRequest(include_cluster_authorized_operations=True)
        allowed = AclCreation(
            resource_type=4, resource_name="kafka-cluster", principal="User:bob", host="127.0.0.0/8",
            operation=8, permission_type=3,
        )  # fmt: skip
        request = CreateAclsRequest(creations=(allowed,))
        async with secured.running(settings):
            before = await send(secured.client("SECURE", plain("bob")), request)
            assert [r.error_code for r in before.results] == [Errors.CLUSTER_AUTHORIZATION_FAILED]
            created = await send(secured.client("SECURE", plain()), request)
            assert [r.error_code for r in created.results] == [Errors.NONE]
        async with secured.running(settings):
            response = await send(secured.client("SECURE", plain("bob")), describe)
            assert response.cluster_authorized_operations == operation_bits(Operation.DESCRIBE)

    run(scenario())


def test_a_session_is_renewed_while_requests_are_sent(tmp_path: Path) -> None:
    """Requests that are sent meanwhile wait for the renewal; none is lost, and the connection stays."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running(secured.settings(connections_max_reauth_ms="600000")):
            client = secured.client("SECURE", plain())
            async with client:
                connection = await client.any_node()
                (served,) = secured.broker.network.connections
                assert isinstance(served, SaslConnection)
                connection._begin_reauthentication(client.settings.security)
                for _ in range(20):
                    await connection.send(MetadataRequest(topics=()))
                assert served._reauthenticated_at_s is not None
                assert served._authenticator is None
                assert list(secured.broker.network.connections) == [served]

    run(scenario())


def test_a_session_is_renewed_in_the_last_part_of_its_lifetime() -> None:
    assert reauthentication_delay_s(10_000, 0.0) == pytest.approx(8.5)
    assert reauthentication_delay_s(10_000, 1.0) == pytest.approx(9.5)


def test_a_failed_renewal_closes_the_connection(tmp_path: Path) -> None:
    """Requests do not wait for a renewal that cannot succeed, whatever the program's own code raises."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running():
            client = secured.client("SASL", plain(protocol="SASL_PLAINTEXT"))
            async with client:
                connection = await client.any_node()

                def fail() -> str:
                    raise OSError("no token")

                failing = ClientSecurity(
                    protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token_provider=fail
                )
                connection._begin_reauthentication(failing)
                with pytest.raises(ClientError):
                    await connection.send(MetadataRequest(topics=()))
                assert connection.is_closed

    run(scenario())


def test_a_session_that_has_ended_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        settings = secured.settings(connections_max_reauth_ms="100000")
        async with secured.running(settings):
            client = secured.client("SASL", plain(protocol="SASL_PLAINTEXT"))
            async with client:
                connection = await client.any_node()
                (served,) = secured.broker.network.connections
                assert isinstance(served, SaslConnection)
                served._expires_at_s = 0.0
                with pytest.raises(ClientError):
                    await connection.send(MetadataRequest(topics=()))

    run(scenario())


def test_a_heartbeat_is_not_held_beyond_the_end_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def hold(_connection: Any, _cached: Any, _frame: bytes, held_ms: int) -> bool:
        held.append(held_ms)
        return True

    async def scenario() -> None:
        secured = Secured(tmp_path)
        client = secured.client
        settings = secured.settings(connections_max_reauth_ms="600000")
        async with secured.running(settings), client("SASL", plain(protocol="SASL_PLAINTEXT")) as alice:
            await alice.any_node()
            (served,) = secured.broker.network.connections
            assert isinstance(served, SaslConnection)
            monkeypatch.setattr(secured.broker.heartbeat_purgatory, "hold", hold)
            cached: Any = None
            now_s = asyncio.get_running_loop().time()
            served._expires_at_s = now_s - 1
            assert not served._hold(cached, b"", 600_000)
            served._expires_at_s = now_s + 500
            assert served._hold(cached, b"", 600_000)
            assert served._hold(cached, b"", 1_000)
            assert 0 < held[0] <= 500_000
            assert held[1:] == [1_000]

    run(scenario())


def test_an_unauthenticated_client_is_not_served(tmp_path: Path) -> None:
    """Its request closes the connection, and so does a frame that is too long."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running(secured.settings(sasl_server_max_receive_size="1000")):
            port = secured.server.listeners["SASL"].port
            header = b"\0\x03\0\x01\0\0\0\x07\0\0"
            request = header + encode(MetadataRequest(topics=()), 1)
            for data in (len(request).to_bytes(4, "big") + request, (1_001).to_bytes(4, "big"), b"\xff" * 8):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                assert await reader.read() == b""
                writer.close()

    run(scenario())


def test_a_tls_port_does_not_serve_plaintext(tmp_path: Path) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running():
            reader, writer = await asyncio.open_connection("127.0.0.1", secured.server.listeners["TLS"].port)
            writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            try:
                answer = await reader.read()
            except ConnectionResetError:
                answer = b""
            writer.close()
            assert b"\0\x12" not in answer[4:]
            with pytest.raises(ClientError, match=r"security\.protocol"):
                await send(
                    secured.client("PLAINTEXT", {"security.protocol": "SSL"}), MetadataRequest(topics=())
                )

    run(scenario())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"is_expired": True}, "has expired"), ({"hosts": ("elsewhere.example",)}, "for another host")],
)
def test_a_client_checks_the_certificate(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        secured.keystore = secured.authority.server(**options).write(tmp_path, "bad")[2]
        async with secured.running():
            with pytest.raises(AuthenticationFailed, match=message):
                await send(secured.client("SECURE", plain()), MetadataRequest(topics=()))

    run(scenario())


def test_a_changed_key_store_serves_new_connections(tmp_path: Path) -> None:
    """A broken file keeps the old certificate; open connections stay."""

    async def served_certificate(secured: Secured) -> bytes:
        context = ssl.create_default_context(cafile=str(secured.ca_file))
        port = secured.server.listeners["TLS"].port
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        assert isinstance(certificate, bytes)
        return certificate

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running(), secured.client("TLS", {"security.protocol": "SSL"}) as client:
            connection = await client.any_node()
            old = await served_certificate(secured)
            secured.keystore.write_text("broken")
            secured.broker.listener_security.reload_changed_files()
            assert await served_certificate(secured) == old
            renewed = secured.authority.server()
            secured.keystore.write_text(renewed.key + renewed.certificate)
            secured.broker.listener_security.reload_changed_files()
            assert await served_certificate(secured) == renewed.der
            await connection.send(MetadataRequest(topics=()))

    run(scenario())


KERBEROS = {
    f"listener_name_{name}_gssapi_sasl_jaas_config": (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=k principal=p;"
    )
    for name in ("secure", "sasl")
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ssl_keystore_location": ""}, "needs a key"),
        ({"ssl_keystore_location": "/nowhere.pem"}, "cannot be read"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "Krb5LoginModule required useKeyTab=true"),
        ({"sasl_enabled_mechanisms": "GSSAPI", **KERBEROS}, "No serviceName defined"),
        ({"sasl_enabled_mechanisms": "EXTERNAL"}, "EXTERNAL is not supported"),
        ({"listener_name_sasl_plain_sasl_jaas_config": ""}, "JAAS|set listener"),
        ({"ssl_principal_mapping_rules": "RULE:["}, "Invalid rule"),
        ({"sasl_enabled_mechanisms": "OAUTHBEARER"}, "expected.issuer is required"),
    ],
)
def test_incomplete_settings_do_not_start(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        with pytest.raises(ConfigError, match=message):
            async with secured.running(secured.settings(**changed)):
                pass

    run(scenario())
