"""Changes of a listener's key store and trust store while the broker serves, with the outcomes of Kafka."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tests.security_cases.stage import Stage, until

from konvene.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKER, SET, DELETE = 4, 0, 1
INVALID_REQUEST: Final = 42
PREFIX: Final = "listener.name.tls."
LOCATION: Final = f"{PREFIX}ssl.keystore.location"
NETWORK_THREADS: Final = 3
"""Kafka's threads of each listener, which take turns with new connections."""
SECRET: Final = f"{PREFIX}ssl.keystore.password"

INVALID: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException:"
    " Validation of dynamic config update of SSLFactory failed: "
)
UNUSABLE: Final = f"{INVALID}org.apache.kafka.common.errors.InvalidConfigurationException: "
INCOMPATIBLE: Final = f"{INVALID}org.apache.kafka.common.config.ConfigException: "
OTHER_NAME: Final = (
    f"{INCOMPATIBLE}Keystore DistinguishedName does not match:  existing={{alias=kafka, DN=CN=localhost}},"
    " new={alias=kafka, DN=CN=other} for configuration Invalid dynamic configuration"
)


class Answer(NamedTuple):
    """Error code and message of a change."""

    error: int
    message: str | None = None

    def begins_like(self, other: Answer) -> bool:
        """Return True if the error is the same, and the message begins with that of `other`."""
        return self.error == other.error and (self.message or "").startswith(other.message or "")


ACCEPTED: Final = Answer(0)


def alter(
    stage: Stage, changes: dict[str, str | None], broker: str = "1", *, validate_only: bool = False
) -> Answer:
    """Set these settings of a broker; None deletes one."""
    configs = tuple(
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in changes.items()
    )
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=configs)
    response = stage.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only))
    (result,) = response.responses
    return Answer(int(result.error_code), result.error_message)


def unusable_changes(stage: Stage) -> list[tuple[str, Answer, Answer, bool]]:
    """Alter the key store in ways that cannot be used.

    Return name, answer, Kafka's answer, and whether new connections get the old certificate, of each."""

    def written(file: str, text: str = "", **options: Any) -> str:
        path = stage.folder / file
        if text:
            path.write_text(text)
        else:
            stage.write_key_store(path, **options)
        return str(path)

    broken, missing = written("broken.pem", "broken"), str(stage.folder / "missing.pem")
    other_name, fewer_hosts = written("dn.pem", name="other"), written("san.pem", hosts=("localhost",))
    other_hosts = f"{INCOMPATIBLE}Keystore SubjectAltNames do not match:  existing={{alias=kafka, SAN=[["
    add_key = {f"{PREFIX}ssl.keystore.key": "x"}
    rows: list[tuple[str, dict[str, str | None], Answer]] = [
        ("no PEM", {LOCATION: broken}, Answer(INVALID_REQUEST, UNUSABLE)),
        ("no file", {LOCATION: missing}, Answer(INVALID_REQUEST, UNUSABLE)),
        ("no key", {LOCATION: str(stage.ca_file)}, Answer(INVALID_REQUEST, UNUSABLE)),
        ("another name", {LOCATION: other_name}, Answer(INVALID_REQUEST, OTHER_NAME)),
        ("fewer hosts", {LOCATION: fewer_hosts}, Answer(INVALID_REQUEST, other_hosts)),
        ("another type", {f"{PREFIX}ssl.keystore.type": "JKS"}, Answer(INVALID_REQUEST, UNUSABLE)),
        ("a password of PEM", {SECRET: "secret"}, Answer(INVALID_REQUEST, UNUSABLE)),
        ("a second key", add_key, Answer(INVALID_REQUEST, UNUSABLE)),
        ("no store", {LOCATION: ""}, Answer(INVALID_REQUEST, UNUSABLE)),
        ("no trust", {f"{PREFIX}ssl.truststore.location": broken}, Answer(INVALID_REQUEST, UNUSABLE)),
        (
            "without a listener",
            {"ssl.keystore.location": broken},
            Answer(
                INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the listener"
                " prefix: [ssl.keystore.location]",
            ),
        ),
        ("a listener without TLS", {"listener.name.sasl.ssl.keystore.location": missing}, ACCEPTED),
    ]
    served = stage.served_certificate()
    results = []
    for name, changes, expected in rows:
        checked = alter(stage, changes, validate_only=True)
        answer = alter(stage, changes)
        results.append((name, answer, expected, checked == answer and stage.served_certificate() == served))
    whole_cluster = Answer(
        INVALID_REQUEST,
        f"Cannot update these configs at default cluster level, broker id must be specified: [{LOCATION}]",
    )
    answer = alter(stage, {LOCATION: broken}, broker="")
    results.append(("all brokers", answer, whole_cluster, stage.served_certificate() == served))
    return results


def rotate(stage: Stage) -> None:
    """Replace the key store by another file, then the content of that file; connections get each.

    A file that cannot be read again when it is named once more keeps the certificate."""
    store = stage.folder / "renewed.pem"
    for _ in range(2):
        certificate = stage.write_key_store(store)
        _accepted(alter(stage, {LOCATION: str(store)}))
        until(lambda expected=certificate: _all_serve(stage, expected))  # type: ignore[misc]
        store.write_text("broken")
        _accepted(alter(stage, {LOCATION: str(store)}))
        assert _all_serve(stage, certificate)


def _all_serve(stage: Stage, certificate: bytes) -> bool:
    """Return True if all network threads have the certificate: Kafka gives it to one after the other."""
    return all(stage.served_certificate() == certificate for _ in range(NETWORK_THREADS * 4))


def described_secret(stage: Stage) -> tuple[str | None, bool]:
    """Return value and sensitivity of a password that was set, as DescribeConfigs shows them."""
    name = "listener.name.sasl.ssl.keystore.password"
    _accepted(alter(stage, {name: "secret"}))
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=(name,))
    found: list[DescribeConfigsResourceResult] = []

    def is_described() -> bool:
        (result,) = stage.ask(DescribeConfigsRequest(resources=(resource,))).results
        found[:] = result.configs
        return bool(found)

    until(is_described)
    return found[0].value, found[0].is_sensitive


def mismatched(stage: Stage) -> str:
    """Return the path of a key store whose key belongs to another certificate."""
    one, other = stage.authority.server(), stage.authority.server()
    path = stage.folder / "mismatched.pem"
    path.write_text(one.key + other.certificate)
    return str(path)


def _accepted(answer: Answer) -> None:
    assert answer == ACCEPTED, answer
