"""ACLs, SASL, delegation tokens, SCRAM credentials: unsupported, each with Kafka's error."""

from __future__ import annotations

from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.errors import Errors
from konvene.messages.create_acls import AclCreation, CreateAclsRequest
from konvene.messages.create_delegation_token import CreateDelegationTokenRequest
from konvene.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from konvene.messages.describe_acls import DescribeAclsRequest
from konvene.messages.describe_delegation_token import DescribeDelegationTokenRequest
from konvene.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from konvene.messages.expire_delegation_token import ExpireDelegationTokenRequest
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest
from konvene.messages.sasl_handshake import SaslHandshakeRequest

CODES = {"operation": 3, "permission_type": 3}
"""READ and ALLOW: the codes 0 are those of nothing."""


def test_acl_requests_are_answered_with_security_disabled(tmp_path: Path) -> None:
    """Each ACL or filter has its own result."""

    async def scenario(client: BrokerClient) -> None:
        off = Errors.SECURITY_DISABLED
        creation = AclCreation(**CODES, resource_type=2)
        described = await client.send(DescribeAclsRequest(**CODES, resource_type_filter=1))
        assert (described.error_code, described.resources) == (off, ())
        created = await client.send(CreateAclsRequest(creations=(creation, creation)))
        assert [r.error_code for r in created.results] == [off, off]
        deleted = await client.send(
            DeleteAclsRequest(filters=(DeleteAclsFilter(**CODES, resource_type_filter=1),))
        )
        assert [r.error_code for r in deleted.filter_results] == [off]

    run_with_broker(tmp_path, scenario)


def test_sasl_requests_are_in_an_illegal_state(tmp_path: Path) -> None:
    async def scenario(client: BrokerClient) -> None:
        handshake = await client.send(SaslHandshakeRequest(mechanism="PLAIN"))
        assert (handshake.error_code, handshake.mechanisms) == (Errors.ILLEGAL_SASL_STATE, ())
        assert (await client.send(SaslAuthenticateRequest())).error_code == Errors.ILLEGAL_SASL_STATE

    run_with_broker(tmp_path, scenario)


def test_delegation_token_requests_are_not_allowed(tmp_path: Path) -> None:
    """All versions of the four APIs."""

    async def scenario(client: BrokerClient) -> None:
        for request, versions in (
            (CreateDelegationTokenRequest(), (1, 2, 3)),
            (RenewDelegationTokenRequest(), (1, 2)),
            (ExpireDelegationTokenRequest(), (1, 2)),
            (DescribeDelegationTokenRequest(), (1, 2, 3)),
        ):
            for version in versions:
                answer = await client.send(request, version)
                assert answer.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    run_with_broker(tmp_path, scenario)


def test_scram_credentials_are_not_found(tmp_path: Path) -> None:
    """All users: no results. Named users: not found, or a duplicate."""

    async def scenario(client: BrokerClient) -> None:
        assert (await client.send(DescribeUserScramCredentialsRequest(users=None))).results == ()
        users = tuple(UserName(name=name) for name in ("a", "b", "a"))
        named = await client.send(DescribeUserScramCredentialsRequest(users=users))
        assert [(r.user, r.error_code) for r in named.results] == [
            ("a", Errors.DUPLICATE_RESOURCE), ("b", Errors.RESOURCE_NOT_FOUND),
        ]  # fmt: skip

    run_with_broker(tmp_path, scenario)
