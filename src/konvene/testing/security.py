"""Security of a test's broker: certificates, users, ACLs, and the options of its clients.

Everything is made when the broker starts: a certificate authority, the server's certificate, a client
certificate and credentials for each user. ACLs are written in one line, such as `alice READ,WRITE
topic:orders`."""

from __future__ import annotations

import shutil
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from konvene.broker.net.listener_security import UNSECURED
from konvene.client.security import ClientSecurity, client_security
from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.resources import CLUSTER_NAME, Operation, ResourceType
from konvene.testing.client_options import LOGIN_MODULES, OAUTHBEARER, ClientOptions

if TYPE_CHECKING:
    from konvene.testing.certificates import Certificate

__all__ = ["BrokerSecurity", "parse_acl"]

ADMIN: Final = "konvene-admin"
"""Super user of the broker, by which the fixture itself connects."""

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = tuple(LOGIN_MODULES)
CERTIFICATES: Final = ("valid", "expired", "wrong-host")
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_acl(text: str) -> tuple[Acl, ...]:
    """Return the ACLs of a line `[deny] USER OPERATION[,…] TYPE:NAME [from HOST]`.

    A name that ends with `*` is a prefix, `*` alone stands for all; `cluster` needs no name. Raises
    ValueError."""
    words = text.split()
    permission = PermissionType.ALLOW
    if words and words[0].lower() in ("allow", "deny"):
        permission = PermissionType[words.pop(0).upper()]
    host = "*"
    if len(words) == 5 and words[3].lower() == "from":
        host = words[4]
        del words[3:]
    if len(words) != 3:
        raise ValueError(f"{text!r}: write an ACL as 'alice READ topic:orders'")
    user, operations, resource = words
    kind, _, name = resource.partition(":")
    try:
        resource_type = ResourceType[kind.upper().replace("-", "_")]
        named = [Operation[operation.upper()] for operation in operations.split(",")]
    except KeyError as unknown:
        raise ValueError(f"{text!r}: {unknown.args[0]} is unknown") from None
    if resource_type is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    if not name:
        raise ValueError(f"{text!r}: the resource has no name")
    pattern = PatternType.LITERAL
    if len(name) > 1 and name.endswith("*"):
        name, pattern = name[:-1], PatternType.PREFIXED
    principal = user if ":" in user else f"User:{user}"
    return tuple(
        Acl(resource_type, name, pattern, principal, host, operation, permission) for operation in named
    )


class _Unchecked(ClientSecurity):
    """The security of a client that does not verify the broker's certificate."""

    __slots__ = ()

    def tls_context(self) -> ssl.SSLContext | None:
        context = super().tls_context()
        if context is not None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class BrokerSecurity:
    """The protocol, users and certificates of one broker. `close` removes its files."""

    def __init__(
        self,
        protocol: str,
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] = (),
        certificate: str = "valid",
        mechanism: str = "PLAIN",
    ) -> None:
        """`users` has passwords by name; `certificate` is the server's: valid, expired or wrong-host.

        `mechanism` is the SASL mechanism of the users; with OAUTHBEARER the broker accepts tokens without a
        signature. Without `acls` every authenticated user may do everything. Raises ValueError."""
        if protocol not in PROTOCOLS:
            raise ValueError(f"security={protocol!r}: use one of {', '.join(PROTOCOLS)}")
        if certificate not in CERTIFICATES:
            raise ValueError(f"certificate={certificate!r}: use one of {', '.join(CERTIFICATES)}")
        if mechanism not in MECHANISMS:
            raise ValueError(f"mechanism={mechanism!r}: use one of {', '.join(MECHANISMS)}")
        self.protocol = protocol
        self.mechanism = mechanism
        self.users = dict(users or {})
        self.acls = tuple(acl for text in acls for acl in parse_acl(text))
        self.has_acls = bool(self.acls)
        self.folder = Path(tempfile.mkdtemp(prefix="konvene-security-"))
        self._passwords = {**self.users, ADMIN: uuid4().hex}
        self._certificates: dict[str, tuple[Path, Path, Path]] = {}
        self._ca_file: Path | None = None
        if protocol != "SASL_PLAINTEXT":
            self._make_certificates(certificate)

    def __repr__(self) -> str:
        return f"<{self.protocol} with users {', '.join(self.users) or 'none'}>"

    def _make_certificates(self, kind: str) -> None:
        from konvene.testing.certificates import LOCAL_HOSTS, CertificateAuthority

        authority = CertificateAuthority()
        self._ca_file = self.folder / "ca.pem"
        self._ca_file.write_text(authority.certificate)
        hosts = ("elsewhere.example",) if kind == "wrong-host" else LOCAL_HOSTS
        made: dict[str, Certificate] = {"server": authority.server(hosts, is_expired=kind == "expired")}
        if self.protocol == "SSL":
            made |= {user: authority.client(f"CN={user}") for user in self._passwords}
        for index, (name, certificate) in enumerate(made.items()):
            self._certificates[name] = certificate.write(self.folder, f"certificate-{index}")

    @property
    def settings(self) -> dict[str, str]:
        """Return the broker's settings."""
        settings: dict[str, str] = {}
        if self._ca_file is not None:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._certificates["server"][2]),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._ca_file),
            }
        if self.protocol == "SSL":
            settings |= {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/"}
        else:
            users = " ".join(f'user_{name}="{_escaped(word)}"' for name, word in self._passwords.items())
            name = f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"
            settings |= {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                name: f"{LOGIN_MODULES['PLAIN']} required {users};",
            }
            if self.mechanism == OAUTHBEARER:
                handler = (
                    f"listener.name.{self.protocol.lower()}.oauthbearer.sasl.server.callback.handler.class"
                )
                settings |= {
                    "sasl.enabled.mechanisms": f"{settings['sasl.enabled.mechanisms']},{OAUTHBEARER}",
                    handler: UNSECURED,
                }
        if self.has_acls:
            settings |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{ADMIN}"}
        return settings

    @property
    def scram_passwords(self) -> dict[str, str]:
        """Return the passwords of the users who need SCRAM credentials; empty for other mechanisms."""
        return self.users if self.mechanism.startswith("SCRAM") else {}

    def options(self, user: str, bootstrap: str) -> ClientOptions:
        """Return the options by which a user's clients connect. Raises ValueError for an unknown user."""
        if user not in self._passwords:
            raise ValueError(
                f"user {user!r} is unknown; the broker has {', '.join(self.users) or 'no users'}"
            )
        has_sasl = self.protocol.startswith("SASL_")
        mechanism = "PLAIN" if user == ADMIN else self.mechanism
        own = self._certificates.get(user, (None, None, None))
        return ClientOptions(
            bootstrap=bootstrap,
            security_protocol=self.protocol,
            mechanism=mechanism if has_sasl else "",
            username=user if has_sasl else "",
            password=self._passwords[user] if has_sasl else "",
            ca_file=self._ca_file,
            certificate_file=own[0],
            key_file=own[1],
            keystore_file=own[2],
        )

    def write_properties(self, user: str, bootstrap: str) -> Path:
        """Write and return the `client.properties` file of a user, for `--command-config`."""
        path = self.folder / f"client-{list(self._passwords).index(user)}.properties"
        path.touch(mode=0o600)
        path.write_text(self.options(user, bootstrap).properties)
        return path

    def admin(self) -> ClientSecurity:
        """Return the security of the fixture's own client, which accepts any certificate of the broker."""
        checked = client_security(self.options(ADMIN, "").java)
        return _Unchecked(
            protocol=checked.protocol,
            tls=checked.tls,
            mechanism=checked.mechanism,
            username=checked.username,
            password=checked.password,
        )

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
