"""The listeners of a broker, the settings of each, and how those are altered and described."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.configs import BrokerConfig, ConfigError, Source
from konvene.configs.alter import validate_broker
from konvene.configs.describe import describe_broker, describe_cluster
from konvene.configs.listeners import (
    Listener,
    broker_listeners,
    inter_broker_listener,
    listener_settings,
    mechanism_setting,
)

MAP = "INTERNAL:SSL,EXTERNAL:sasl_ssl,PLAINTEXT:PLAINTEXT,SSL:SSL"


def _config(**settings: str) -> BrokerConfig:
    pairs = [(name.replace("_", "."), value) for name, value in settings.items()]
    return BrokerConfig.load(overrides=pairs)[0]


def _set(*pairs: tuple[str, str]) -> BrokerConfig:
    return BrokerConfig.load(overrides=pairs)[0]


def _error(**settings: str) -> str:
    with pytest.raises(ConfigError) as raised:
        broker_listeners(_config(**settings))
    return str(raised.value)


def test_the_default_is_one_plaintext_listener() -> None:
    """Kafka's default: all interfaces, port 9092."""
    listeners = broker_listeners(_config())
    assert listeners == (Listener("PLAINTEXT", "PLAINTEXT", "", 9092, True, "", 9092),)
    assert listeners[0].prefix == "listener.name.plaintext."


def test_names_are_mapped_to_protocols_and_advertised_addresses() -> None:
    """Names are compared in upper case, and hosts keep their case."""
    listeners = broker_listeners(
        _config(
            listeners="internal://10.0.0.1:9093,External://[::1]:9094,PLAINTEXT://:0",
            advertised_listeners="EXTERNAL://broker.Example.org:443,PLAINTEXT://host:0",
            listener_security_protocol_map=MAP,
        )
    )
    assert listeners == (
        Listener("INTERNAL", "SSL", "10.0.0.1", 9093, is_advertised=False),
        Listener("EXTERNAL", "SASL_SSL", "::1", 9094, True, "broker.Example.org", 443),
        Listener("PLAINTEXT", "PLAINTEXT", "", 0, True, "host", 0),
    )
    assert [(one.has_tls, one.has_sasl) for one in listeners] == [(True, False), (True, True), (False, False)]


def test_listeners_of_the_controller_are_ignored() -> None:
    """By `controller.listener.names`, or CONTROLLER without it; they need no security protocol."""
    both = {"listeners": "PLAINTEXT://:1,CONTROLLER://:2"}
    assert [listener.name for listener in broker_listeners(_config(**both))] == ["PLAINTEXT"]
    named = {"listeners": "PLAINTEXT://:1,CTRL://:2", "controller.listener.names": "CTRL"}
    assert [listener.name for listener in broker_listeners(_set(*named.items()))] == ["PLAINTEXT"]
    assert "Perhaps all listeners appear in controller.listener.names?" in _error(listeners="CONTROLLER://:2")


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("PLAINTEXT:9092", "Unable to parse PLAINTEXT:9092 to a broker endpoint"),
        ("PLAINTEXT://a b:9092", "Unable to parse PLAINTEXT://a b:9092 to a broker endpoint"),
        ("PLAINTEXT://:x", "Unable to parse PLAINTEXT://:x to a broker endpoint"),
        ("PLAINTEXT://:70000", "port out of range:70000"),
        ("PLAINTEXT://:-1", "port out of range:-1"),
        ("OTHER://:1", "No security protocol defined for listener OTHER"),
        (
            "SSL://:1,ssl://:2",
            "Each listener must have a different name, listeners: [SSL://:1, ssl://:2]",
        ),
        (
            "SSL://:1,PLAINTEXT://:1",
            "Each listener must have a different port, listeners: [SSL://:1, PLAINTEXT://:1]",
        ),
        (
            "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.2:1",
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6,"
            " listeners: [SSL://127.0.0.1:1, PLAINTEXT://127.0.0.2:1], port: 1",
        ),
        (
            "SSL://127.0.0.1:1,PLAINTEXT://[::1]:1,SASL_SSL://host:1",
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6,"
            " listeners: [SSL://127.0.0.1:1, PLAINTEXT://[::1]:1, SASL_SSL://host:1], port: 1",
        ),
        (
            "SSL://127.0.0.1:1,PLAINTEXT://host:1",
            "Each listener must have a different port unless exactly one listener has an IPv4 address and the"
            " other IPv6 address, listeners: [SSL://127.0.0.1:1, PLAINTEXT://host:1], port: 1",
        ),
    ],
)
def test_invalid_listeners_are_rejected_as_in_kafka(listeners: str, message: str) -> None:
    """The messages are those of `AbstractKafkaConfig` and `SocketServerConfigs`."""
    entries = ", ".join(listeners.split(","))
    assert _error(listeners=listeners) == f"Error creating broker listeners from '[{entries}]': {message}"


def test_an_ipv4_and_an_ipv6_address_may_have_the_same_port() -> None:
    """So may any number of listeners on free ports."""
    assert len(broker_listeners(_config(listeners="SSL://127.0.0.1:1,PLAINTEXT://[::1]:1"))) == 2
    assert len(broker_listeners(_config(listeners="SSL://:0,PLAINTEXT://:0"))) == 2


def test_advertised_listeners_may_have_the_same_port() -> None:
    """One listener can advertise the address of another, such as a load balancer's."""
    broker_listeners(
        _config(listeners="SSL://:1,PLAINTEXT://:2", advertised_listeners="SSL://a:1,PLAINTEXT://a:1")
    )


@pytest.mark.parametrize(
    ("advertised", "message"),
    [
        (
            "PLAINTEXT://0.0.0.0:1",
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP"
            " address.",
        ),
        (
            "PLAINTEXT://a:1,SSL://b:2",
            "advertised.listeners listener names must be equal to or a subset of the ones defined in"
            " listeners. Found PLAINTEXT,SSL. The valid options based on the current configuration are"
            " PLAINTEXT",
        ),
    ],
)
def test_invalid_advertised_listeners_are_rejected(advertised: str, message: str) -> None:
    """A wildcard cannot be advertised, nor a listener that does not exist."""
    assert _error(listeners="PLAINTEXT://:1", advertised_listeners=advertised) == message


def test_a_wildcard_without_an_advertised_address_leaves_the_host_open() -> None:
    """The broker determines it when it starts."""
    (listener,) = broker_listeners(_config(listeners="PLAINTEXT://0.0.0.0:1"))
    assert (listener.host, listener.advertised_host) == ("0.0.0.0", "")


def test_an_invalid_map_is_rejected() -> None:
    """An unknown protocol, and an entry without one."""
    assert _error(listener_security_protocol_map="PLAINTEXT:TLS") == (
        "Invalid security protocol `TLS` defined in listener.security.protocol.map"
    )
    assert _error(listener_security_protocol_map="PLAINTEXT").endswith("PLAINTEXT has no protocol")


def test_the_inter_broker_listener_is_validated_if_it_is_set() -> None:
    """Without a setting it is PLAINTEXT, or else the first one."""
    ssl = _config(listeners="SSL://:1,SASL_SSL://:2")
    assert inter_broker_listener(ssl, broker_listeners(ssl)) == "SSL"
    named = _config(listeners="SSL://:1,SASL_SSL://:2", inter_broker_listener_name="sasl_ssl")
    assert inter_broker_listener(named, broker_listeners(named)) == "SASL_SSL"
    assert _error(inter_broker_listener_name="X") == (
        "Listener with name X defined in inter.broker.listener.name not found in"
        " listener.security.protocol.map."
    )
    assert _error(inter_broker_listener_name="SSL") == (
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid"
        " options based on currently configured listeners are PLAINTEXT"
    )
    assert _error(inter_broker_listener_name="SSL", security_inter_broker_protocol="SSL") == (
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
    )


PREFIX = "listener.name.external."
EXTERNAL = Listener("EXTERNAL", "SASL_SSL", "", 1)


def test_settings_of_a_listener_override_those_of_the_broker() -> None:
    """Those of a mechanism keep its name as prefix, and have no default but for re-authentication."""
    config = _set(
        ("max.connections", "9"),
        (PREFIX + "max.connections", "5"),
        ("connections.max.reauth.ms", "1000"),
        (PREFIX + "plain.connections.max.reauth.ms", "2000"),
        ("sasl.jaas.config", "ignored"),
        (PREFIX + "plain.sasl.jaas.config", "s3cret"),
        ("listener.name.other.max.connections", "1"),
    )
    settings = listener_settings(config, EXTERNAL)
    assert settings["max.connections"] == 5
    assert listener_settings(config, Listener("SSL", "SSL", "", 1))["max.connections"] == 9
    assert mechanism_setting(settings, "PLAIN", "connections.max.reauth.ms") == 2000
    assert mechanism_setting(settings, "SCRAM-SHA-256", "connections.max.reauth.ms") == 1000
    assert mechanism_setting(settings, "PLAIN", "sasl.jaas.config").reveal() == "s3cret"
    assert mechanism_setting(settings, "SCRAM-SHA-256", "sasl.jaas.config") is None
    assert "s3cret" not in repr(settings)


def test_client_authentication_of_sasl_ssl_needs_the_prefix() -> None:
    """As in Kafka, `ssl.client.auth` of the broker is for SSL listeners."""
    broker = _set(("ssl.client.auth", "required"))
    assert listener_settings(broker, EXTERNAL)["ssl.client.auth"] == "none"
    assert listener_settings(broker, Listener("SSL", "SSL", "", 1))["ssl.client.auth"] == "required"
    own = _set((PREFIX + "ssl.client.auth", "requested"))
    assert listener_settings(own, EXTERNAL)["ssl.client.auth"] == "requested"


def test_a_dynamic_setting_of_a_listener_precedes_a_static_one() -> None:
    """And a setting with the prefix precedes one without, whatever its source."""
    name = PREFIX + "max.connections"
    static = _set((name, "5"))
    changed, _ = static.with_dynamic({name: "6", "max.connections": "2"}, {})
    assert listener_settings(changed, EXTERNAL)["max.connections"] == 6
    changed, _ = static.with_dynamic({name: "6"}, {name: "7"})
    assert (changed[name], changed.origin(name).source) == (7, Source.BROKER)
    restored, _ = changed.with_dynamic({}, {})
    assert listener_settings(restored, EXTERNAL)["max.connections"] == 5


def test_an_invalid_static_value_is_rejected() -> None:
    """The message has its place."""
    with pytest.raises(ConfigError, match=r"--set: Invalid value x for configuration max\.connections"):
        _set((PREFIX + "max.connections", "x"))


@pytest.mark.parametrize("base", ["ssl.keystore.location", "plain.sasl.jaas.config", "no.such.setting"])
def test_settings_of_a_listener_are_altered_for_one_broker(base: str) -> None:
    """Only limits of connections can be altered for the cluster; unknown names are stored, as in Kafka."""
    name = PREFIX + base
    changed, _ = validate_broker(_config(), {name: "x"}, per_broker=True)
    assert changed.broker == {name: "x"}
    with pytest.raises(ConfigError, match="broker id must be specified"):
        validate_broker(_config(), {name: "x"}, per_broker=False)


def test_limits_of_a_listener_are_altered_for_the_cluster() -> None:
    """They are shown by both resources."""
    name = PREFIX + "max.connections"
    changed, warnings = validate_broker(_config(), {name: "3"}, per_broker=False)
    assert not warnings
    described = {entry.name: entry for entry in describe_broker(changed)}[name]
    assert (described.value, described.source, described.sensitive) == ("3", Source.CLUSTER, False)
    assert [(entry.name, entry.value) for entry in describe_cluster(changed)] == [(name, "3")]
    with pytest.raises(ConfigError, match="Invalid value x"):
        validate_broker(_config(), {name: "x"}, per_broker=False)


def test_passwords_of_a_listener_are_not_described() -> None:
    """Nor are values of unknown settings; file names are."""
    names = ("ssl.keystore.password", "plain.sasl.jaas.config", "unknown.name")
    secrets = {PREFIX + name: "s3cret" for name in names}
    config, _ = _config().with_dynamic({}, secrets | {PREFIX + "ssl.keystore.location": "/k"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert all((entries[name].value, entries[name].sensitive) == (None, True) for name in secrets)
    assert entries[PREFIX + "ssl.keystore.location"].value == "/k"
    assert "s3cret" not in repr(entries)
    assert "s3cret" not in repr(config.values)


@given(st.text(max_size=40))
def test_any_text_is_listeners_or_a_config_error(text: str) -> None:
    """Bad input gives no other exception."""
    try:
        listeners = broker_listeners(_config(listeners=f"PLAINTEXT://h:1,{text}"))
    except ConfigError:
        return
    assert listeners[0].host == "h"
