"""`konvene delegation-tokens`: create, renew, expire and describe delegation tokens (KIP-48).

Options and output are those of `kafka-delegation-tokens`; times are in UTC. The HMAC is the token's password.
It is printed by `create` and `describe` only; `renew` and `expire` read it from the environment or from
standard input as well, so that it is in no list of processes."""

from __future__ import annotations

import binascii
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from konvene.cli.options import Connect, cluster_options, fail, json_option, run
from konvene.cli.output import print_json, text_of

if TYPE_CHECKING:
    from konvene.client.admin.credentials import DelegationToken
    from konvene.security.principal import KafkaPrincipal

HEADINGS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)
"""Least widths of the columns, as in Kafka's tool."""


@click.group("delegation-tokens")
def delegation_tokens() -> None:
    """Create, renew, expire and describe delegation tokens.

    \b
    konvene delegation-tokens create --max-life-time-period -1 --renewer-principal User:bob
    konvene delegation-tokens describe
    """


_hmac_option = click.option(
    "--hmac", required=True, envvar="KONVENE_DELEGATION_TOKEN_HMAC", show_envvar=True, metavar="BASE64",
    help="HMAC of the token; - reads it from standard input.",
)  # fmt: skip


@delegation_tokens.command()
@cluster_options
@json_option
@click.option("--max-life-time-period", "lifetime_ms", type=click.INT, default=-1, show_default=True,
              metavar="MS", help="Longest lifetime of the token; -1 for the broker's.")  # fmt: skip
@click.option("--renewer-principal", "renewers", multiple=True, metavar="TYPE:NAME",
              help="Who may renew the token, such as User:bob; may be repeated.")  # fmt: skip
@click.option("--owner-principal", "owner", metavar="TYPE:NAME",
              help="Owner of the token [default: the user that connects].")  # fmt: skip
def create(
    connect: Connect, as_json: bool, lifetime_ms: int, renewers: tuple[str, ...], owner: str | None
) -> None:
    """Create a token; its id and HMAC are user name and password for SCRAM with tokenauth."""
    names = _principals(renewers)

    async def job() -> DelegationToken:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            return await Admin(cluster).create_delegation_token(
                renewers=names,
                owner=_principals((owner,))[0] if owner is not None else None,
                max_lifetime_ms=lifetime_ms,
            )

    token = run(job)
    if as_json:
        print_json(_document(token))
        return
    shown = ", ".join(map(str, names))
    click.echo(
        f"Calling create token operation with renewers :[{shown}] , max-life-time-period :{lifetime_ms}"
    )
    click.echo(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


@delegation_tokens.command()
@cluster_options
@json_option
@_hmac_option
@click.option("--renew-time-period", "period_ms", type=click.INT, default=-1, show_default=True,
              metavar="MS", help="Time until the token expires; -1 for the broker's default.")  # fmt: skip
def renew(connect: Connect, as_json: bool, hmac: str, period_ms: int) -> None:
    """Prolong a token."""
    value = _hmac(hmac)

    async def job() -> int:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            return await Admin(cluster).renew_delegation_token(value, period_ms)

    _print_expiry("renew", run(job), as_json)


@delegation_tokens.command()
@cluster_options
@json_option
@_hmac_option
@click.option("--expiry-time-period", "period_ms", type=click.INT, default=-1, show_default=True,
              metavar="MS", help="Time until the token expires; -1 for at once.")  # fmt: skip
def expire(connect: Connect, as_json: bool, hmac: str, period_ms: int) -> None:
    """Let a token expire."""
    value = _hmac(hmac)

    async def job() -> int:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            return await Admin(cluster).expire_delegation_token(value, period_ms)

    _print_expiry("expire", run(job), as_json)


@delegation_tokens.command()
@cluster_options
@json_option
@click.option("--owner-principal", "owners", multiple=True, metavar="TYPE:NAME",
              help="Only tokens of this owner; may be repeated.")  # fmt: skip
def describe(connect: Connect, as_json: bool, owners: tuple[str, ...]) -> None:
    """Describe tokens: those that the user may see, or those of some owners."""
    names = _principals(owners)

    async def job() -> list[DelegationToken]:
        from konvene.client.admin.admin import Admin

        async with connect() as cluster:
            return await Admin(cluster).describe_delegation_tokens(names or None)

    tokens = run(job)
    if as_json:
        print_json([_document(token) for token in tokens])
        return
    shown = ", ".join(map(str, names))
    click.echo(
        f"Calling describe token operation for owners: [{shown}]"
        if names
        else "Calling describe token operation for current user."
    )
    click.echo(f"Total number of tokens : {len(tokens)}")
    _print(tokens)


def _principals(texts: Sequence[str]) -> list[KafkaPrincipal]:
    from konvene.security.principal import parse_principal

    try:
        return [parse_principal(text.strip()) for text in texts]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _hmac(text: str) -> bytes:
    """Return the bytes of an HMAC. Fails without showing it."""
    if text == "-":
        text = sys.stdin.readline()
    try:
        return b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        fail("--hmac is not in base64", "`konvene delegation-tokens describe` shows it.")


def _print_expiry(operation: str, expiry_ms: int, as_json: bool) -> None:
    if as_json:
        print_json({"expiry_ms": expiry_ms})
    else:
        click.echo(f"Completed {operation} operation. New expiry date : {_date(expiry_ms)}")


def _print(tokens: Sequence[DelegationToken]) -> None:
    """Print a table as Kafka's tool, with an empty line before each row."""
    rows: list[Sequence[str]] = [HEADINGS]
    for token in tokens:
        rows.append(
            (
                token.token_id, b64encode(token.hmac).decode(), str(token.owner), str(token.requester),
                f"[{', '.join(map(str, token.renewers))}]", _date(token.issue_ms), _date(token.expiry_ms),
                _date(token.max_ms),
            )
        )  # fmt: skip
    for row in rows:
        line = " ".join(text_of(cell).ljust(width) for cell, width in zip(row, WIDTHS, strict=True))
        click.echo(f"\n{line}")


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")


def _document(token: DelegationToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "hmac": b64encode(token.hmac).decode(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }
