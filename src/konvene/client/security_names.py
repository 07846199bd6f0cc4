"""Names and values of the security settings of clients, Kafka's and librdkafka's.

A name that is misspelt is rejected with the nearest one: ignored, it would connect less securely than
intended. Settings of other subjects are not checked, as in Kafka's clients."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from konvene.client.errors import Misconfigured

__all__ = ["MECHANISMS", "PROTOCOLS", "SECRETS", "TLS_NAMES", "check_names", "is_security"]

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

TLS_NAMES: Final = (
    "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.keystore.type",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
SASL_NAMES: Final = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
)
LIBRDKAFKA_TLS: Final = (
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
    "ssl.key.pem", "enable.ssl.certificate.verification",
)  # fmt: skip
IGNORED: Final = (
    "security.providers", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation", "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.ticket.renew.window.factor", "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.issuer",
    "sasl.oauthbearer.allow.unverified.audience",
)  # fmt: skip
"""Settings of Java's libraries and of brokers, which change nothing here."""

SECRETS: Final = frozenset(
    ("sasl.jaas.config", "sasl.password", "ssl.keystore.password", "ssl.keystore.key", "ssl.key.password",
     "ssl.truststore.password", "ssl.key.pem", "sasl.oauthbearer.client.credentials.client.secret",
     "sasl.oauthbearer.client.secret")
)  # fmt: skip
"""Settings whose values are secrets."""


_JVM_SASL: Final = "org.apache.kafka.sasl."


def is_security(name: str) -> bool:
    """Return True if a name belongs to the settings that are checked here."""
    return name.startswith(("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", _JVM_SASL))


def check_names(names: Iterable[str], *, all_names: bool = False, others: Iterable[str] = ()) -> None:
    """Raise `Misconfigured` for an unknown security setting, with the nearest name.

    With `all_names` other settings have to be among `others`, too."""
    from konvene.client.oauth.settings import NAMES

    known = {"security.protocol", *TLS_NAMES, *SASL_NAMES, *LIBRDKAFKA_TLS, *IGNORED, *NAMES, *others}
    for name in names:
        if name in known or not (all_names or is_security(name)):
            continue
        nearest = difflib.get_close_matches(name, sorted(known), 1)
        hint = f"; do you mean {nearest[0]}?" if nearest else ""
        raise Misconfigured(f"{name} is not supported{hint}")
