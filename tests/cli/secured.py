"""A secured broker for commands, and the files by which users connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.commands import CommandResult, call

from konvene.testing import Konvene

ALICE_PASSWORD = "marked-alice-password"


class SecuredBroker:
    """A broker with SASL_SSL and ACLs; alice may do everything, bob nothing."""

    def __init__(self, konvene: Konvene) -> None:
        self.konvene = konvene

    @property
    def address(self) -> str:
        return self.konvene.bootstrap

    def file(self, user: str = "alice") -> str:
        return str(self.konvene.client_properties(user))

    def call(self, *args: str, user: str = "alice", stdin: bytes | str | None = None) -> CommandResult:
        """Run a command as a user."""
        return call(self, *args, "--command-config", self.file(user), stdin=stdin)

    def run(self, *args: str, user: str = "alice", stdin: bytes | str | None = None) -> CommandResult:
        """Run a command as a user, which has to succeed."""
        result = self.call(*args, user=user, stdin=stdin)
        assert result.code == 0, result
        return result


@contextmanager
def secured_broker(settings: Mapping[str, Any] | None = None) -> Iterator[SecuredBroker]:
    own = {"super.users": "User:konvene-admin;User:alice", "delegation.token.secret.key": "marked-token-key"}
    with Konvene(
        {**own, **(settings or {})},
        security="SASL_SSL",
        users={"alice": ALICE_PASSWORD, "bob": "marked-bob-password"},
        acls=["carol READ topic:none"],
    ) as konvene:
        yield SecuredBroker(konvene)


def properties(path: Path, text: str) -> str:
    """Write a file, and return its path for --command-config."""
    path.write_text(text)
    return str(path)
