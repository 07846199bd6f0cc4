"""`konvene configs` for users, clients and IP addresses: client quotas, and SCRAM credentials of users.

As in Kafka's tool, quotas and credentials are not changed in one call, and the output has its words. A
password is never printed, neither in errors nor with `--json`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.config_entities import Entities
from konvene.cli.options import fail
from konvene.cli.output import print_json, text_of

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.credentials import ScramPassword

__all__ = ["ClientConfigChange", "change_of", "describe_client_configs"]

QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
"""Entity types of the protocol by those of the command."""
SHOWN_TYPES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
CLIENT_QUOTAS = frozenset(
    ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
)
IP_QUOTAS = frozenset(("connection_creation_rate",))
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MIN_ITERATIONS = 4_096
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]+),)?password=(.*)", re.DOTALL)

HIDDEN = "[hidden]"


async def describe_client_configs(admin: Admin, entities: Entities, as_json: bool) -> None:
    """Print the quotas, and for users the SCRAM credentials, of the entities."""
    from konvene.client.admin.client_quotas import ANY_NAME

    names: list[Any] = [*entities.names, *[ANY_NAME] * (len(entities.types) - len(entities.names))]
    wanted = {QUOTA_TYPES[kind]: name for kind, name in zip(entities.types, names, strict=True)}
    quotas = await admin.describe_client_quotas(wanted, strict=True)
    credentials: dict[str, dict[str, int]] = {}
    if entities.types == ("users",) and None not in entities.names:
        users = [name for name in entities.names if name is not None]
        credentials = await admin.describe_user_scram_credentials(users or None)
    if as_json:
        print_json(
            [
                *({"entity": each.entity, "quotas": dict(sorted(each.values.items()))} for each in quotas),
                *({"entity": {"user": user}, "scram": infos} for user, infos in credentials.items()),
            ]
        )
        return
    from konvene.configs.setting import java_double

    for each in quotas:
        values = ", ".join(f"{key}={java_double(value)}" for key, value in sorted(each.values.items()))
        click.echo(f"Quota configs for {_entity_text(each.entity)} are {values}")
    for user, infos in credentials.items():
        text = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in infos.items())
        click.echo(f"SCRAM credential configs for user-principal '{text_of(user)}' are {text}")


def _entity_text(entity: Mapping[str, str | None]) -> str:
    parts = (
        f"the default {shown}" if entity[kind] is None else f"{shown} '{text_of(entity[kind])}'"
        for kind, shown in SHOWN_TYPES.items()
        if kind in entity
    )
    return ", ".join(parts)


class ClientConfigChange:
    """A checked change: quotas of an entity, or credentials of a user. It shows no password."""

    def __init__(self, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
        self.entities = entities
        self.quotas: dict[str, float | None] = {}
        self.credentials: dict[str, ScramPassword | None] = {}
        self._shown: dict[str, object] = {}
        self.deleted = list(deleted)
        for name, value in added.items():
            if name in SCRAM_MECHANISMS:
                password = _credential(name, value)
                self.credentials[name] = password
                self._shown[name] = {"iterations": password.iterations, "password": HIDDEN}
            else:
                self.quotas[name] = self._shown[name] = _quota(name, value)
        for name in deleted:
            if name in SCRAM_MECHANISMS:
                self.credentials[name] = None
            else:
                self.quotas[name] = None

    def __repr__(self) -> str:
        return f"<change of {', '.join([*self.quotas, *self.credentials])}>"

    @property
    def document(self) -> dict[str, object]:
        """Return the change for --json."""
        return {
            "entity": {QUOTA_TYPES[kind]: name for kind, name in zip(*self.entities, strict=True)},
            "added": self._shown,
            "deleted": self.deleted,
        }

    @property
    def summary(self) -> str:
        """Return the line of Kafka's tool."""
        name = self.entities.names[0]
        if name is None:
            return f"Completed updating default config for {self.entities.type} in the cluster."
        return f"Completed updating config for {self.entities.type[:-1]} {name}."

    async def apply(self, admin: Admin) -> None:
        """Send the change; fail if it deletes a quota that is not set."""
        if self.credentials:
            (user,) = self.entities.names
            assert user is not None
            await admin.alter_user_scram_credentials(user, self.credentials)
            return
        entity = {QUOTA_TYPES[kind]: name for kind, name in zip(*self.entities, strict=True)}
        if self.deleted:
            found = await admin.describe_client_quotas(entity, strict=True)
            present = found[0].values if found else {}
            missing = [name for name in self.deleted if name not in present]
            if missing:
                fail(f"{', '.join(missing)}: not set on {_entity_text(entity)}, so it cannot be deleted")
        await admin.alter_client_quotas(entity, self.quotas)


def change_of(entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> ClientConfigChange:
    """Return the change that --add-config and --delete-config describe. Raises UsageError, without values of
    credentials."""
    if len(entities.names) != len(entities.types):
        raise click.UsageError("An entity name must be specified for every entity type.")
    names = [*added, *deleted]
    scram = [name for name in names if name in SCRAM_MECHANISMS]
    if entities.types == ("ips",):
        _check_names(names, IP_QUOTAS, "connection quota", "ips")
    elif "clients" in entities.types:
        _check_names(names, CLIENT_QUOTAS, "quota", "clients")
    else:
        known = CLIENT_QUOTAS | set(SCRAM_MECHANISMS)
        _check_names(names, known, "quota and SCRAM credential", "users")
        if scram and None in entities.names:
            raise click.UsageError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials."
            )
        if scram and len(scram) < len(names):
            raise click.UsageError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users'."
            )
    return ClientConfigChange(entities, added, deleted)


def _check_names(names: Sequence[str], known: frozenset[str], what: str, kind: str) -> None:
    unexpected = [name for name in names if name not in known]
    if unexpected:
        raise click.UsageError(
            f"Only {what} configs can be changed for '{kind}': {', '.join(sorted(known))}. "
            f"Unexpected config names: {', '.join(unexpected)}"
        )


def _quota(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise click.UsageError(f"Cannot parse quota configuration value for {name}: {value}") from None


def _credential(mechanism: str, text: str) -> ScramPassword:
    """Parse `iterations=8192,password=…`. Raises UsageError."""
    from konvene.client.admin.credentials import DEFAULT_ITERATIONS, ScramPassword

    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"Invalid credential property {mechanism}: write {mechanism}=[iterations=N,password=PASSWORD]."
        )
    iterations = DEFAULT_ITERATIONS if match[1] in (None, "-1") else int(match[1])
    if iterations < MIN_ITERATIONS:
        raise click.UsageError(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}"
        )
    return ScramPassword(match[2], iterations)
