"""Options of each client library for a secured broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from konvene.properties import properties_mapping
from konvene.testing.client_options import ClientOptions

SCRAM = ClientOptions(
    bootstrap="localhost:1", security_protocol="SASL_SSL", mechanism="SCRAM-SHA-512",
    username="alice", password='a"b\\c', ca_file=Path("/tmp/ca.pem"),
)  # fmt: skip


def test_each_library_has_its_names() -> None:
    assert SCRAM.confluent_kafka == {
        "bootstrap.servers": "localhost:1", "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice", "sasl.password": 'a"b\\c', "ssl.ca.location": "/tmp/ca.pem",
    }  # fmt: skip
    assert SCRAM.kafka_python == {
        "bootstrap_servers": "localhost:1", "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice", "sasl_plain_password": 'a"b\\c', "ssl_cafile": "/tmp/ca.pem",
    }  # fmt: skip


def test_a_plaintext_broker_needs_its_address_only() -> None:
    plain = ClientOptions(bootstrap="localhost:1")
    assert plain.confluent_kafka == {"bootstrap.servers": "localhost:1", "security.protocol": "PLAINTEXT"}
    assert plain.aiokafka == {"bootstrap_servers": "localhost:1", "security_protocol": "PLAINTEXT"}
    assert plain.properties == "security.protocol=PLAINTEXT\n"


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "PlainLoginModule"), ("SCRAM-SHA-256", "ScramLoginModule")]
)
def test_java_has_a_login_module(mechanism: str, module: str) -> None:
    options = ClientOptions(
        bootstrap="b:1", security_protocol="SASL_PLAINTEXT", mechanism=mechanism, username="u", password="p"
    )
    assert options.java["sasl.jaas.config"].endswith(f'{module} required username="u" password="p";')


def test_a_properties_file_is_read_as_it_was_written() -> None:
    read = properties_mapping(SCRAM.properties, "client.properties")
    assert read == {name: value for name, value in SCRAM.java.items() if name != "bootstrap.servers"}
    assert read["sasl.jaas.config"].endswith(r'password="a\"b\\c";')


def test_the_password_is_not_shown() -> None:
    assert 'a"b' not in repr(SCRAM)
