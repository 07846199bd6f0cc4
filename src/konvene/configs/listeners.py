"""Compute the listeners of a broker and the settings of each from the broker's configuration.

The rules and messages are those of Kafka 4.4 (`AbstractKafkaConfig`, `SocketServerConfigs`). Differences: a
broker may listen on 0.0.0.0 without `advertised.listeners`; listeners of the controller
(`controller.listener.names`, or `CONTROLLER` without it) need no security protocol, because they are not
opened; and without a setting for the inter-broker listener there need not be a PLAINTEXT listener.

A setting `listener.name.<listener>.<setting>` overrides `<setting>` for one listener, and
`listener.name.<listener>.<mechanism>.<setting>` is for one SASL mechanism of it; both names are in lower
case. Those of the key store and the trust store (`ssl.keystore.`, `ssl.key.`, `ssl.truststore.`) apply to new
connections as soon as they are altered for this broker, `max.connections` and `max.connection.creation.rate`
also when they are altered for the cluster; all others when the broker starts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from konvene.configs.broker.table import LISTENER
from konvene.configs.config import BrokerConfig, Source
from konvene.configs.errors import ConfigError

__all__ = [
    "PROTOCOLS",
    "Listener",
    "broker_listeners",
    "inter_broker_listener",
    "listener_settings",
    "mechanism_setting",
]

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Names of Kafka's security protocols."""

LISTENERS: Final = "listeners"
ADVERTISED: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
INTER_BROKER_NAME: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
CONTROLLERS: Final = "controller.listener.names"
DEFAULT_CONTROLLER: Final = "CONTROLLER"

META_ADDRESSES: Final = ("0.0.0.0", "::")
MAX_PORT: Final = 65_535


class Listener(NamedTuple):
    """A listener: where it accepts connections, by which protocol, and the address that clients connect to.

    An empty `host` means all interfaces, port 0 any free port."""

    name: str
    """Name in upper case."""
    protocol: str
    """Security protocol, one of `PROTOCOLS`."""
    host: str
    port: int
    is_advertised: bool = True
    """Whether responses name an address for this listener."""
    advertised_host: str = ""
    """Host that clients connect to; empty if it has to be determined when the broker starts."""
    advertised_port: int = 0
    """Port that clients connect to; 0 means the port that the listener is bound to."""

    @property
    def prefix(self) -> str:
        """Return what the names of the listener's own settings start with."""
        return f"{LISTENER}{self.name.lower()}."

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


class _Endpoint(NamedTuple):
    """One entry of `listeners` or `advertised.listeners`."""

    name: str
    host: str
    port: int


def broker_listeners(config: BrokerConfig) -> tuple[Listener, ...]:
    """Return the broker's listeners in the order of `listeners`, without those of the controller.

    Raises `ConfigError`."""
    protocols, controllers = _protocols(config), _controllers(config)
    texts = config.words(LISTENERS)
    endpoints = _endpoints(texts, protocols, controllers, distinct_ports=True)
    advertised_texts = config[ADVERTISED]
    by_name = endpoints
    if advertised_texts is not None:
        by_name = _endpoints(advertised_texts, protocols, controllers, distinct_ports=False)
    advertised = {endpoint.name: endpoint for endpoint in by_name if endpoint.name not in controllers}
    listeners = tuple(
        _listener(endpoint, protocols[endpoint.name], advertised.get(endpoint.name))
        for endpoint in endpoints
        if endpoint.name not in controllers
    )
    if not listeners or not advertised:
        raise ConfigError(
            "There must be at least one broker advertised listener."
            f" Perhaps all listeners appear in {CONTROLLERS}?"
        )
    inter_broker_listener(config, listeners)
    _check_advertised(advertised, listeners, is_set=advertised_texts is not None)
    return listeners


def inter_broker_listener(config: BrokerConfig, listeners: tuple[Listener, ...]) -> str:
    """Return the name of the inter-broker listener: the one that is set, else PLAINTEXT, else the first.

    Raises `ConfigError` if the one that is set does not exist, or is not advertised."""
    name, protocol = config[INTER_BROKER_NAME], config[INTER_BROKER_PROTOCOL]
    advertised = [listener.name for listener in listeners if listener.is_advertised]
    if name is None:
        wanted = str(protocol)
        if not _is_set(config, INTER_BROKER_PROTOCOL) and wanted not in advertised:
            return advertised[0]
    else:
        if _is_set(config, INTER_BROKER_PROTOCOL):
            raise ConfigError(f"Only one of {INTER_BROKER_NAME} and {INTER_BROKER_PROTOCOL} should be set.")
        wanted = str(name).upper()
        if wanted not in _protocols(config):
            raise ConfigError(
                f"Listener with name {wanted} defined in {INTER_BROKER_NAME} not found in {PROTOCOL_MAP}."
            )
    if wanted not in advertised:
        raise ConfigError(
            f"{INTER_BROKER_NAME} must be a listener name defined in {ADVERTISED}. The valid options based on"
            f" currently configured listeners are {','.join(advertised)}"
        )
    return wanted


def listener_settings(config: BrokerConfig, listener: Listener) -> Mapping[str, Any]:
    """Return the effective settings of a listener: the broker's, overridden by the listener's own.

    Those of one mechanism have its name before theirs: `plain.sasl.jaas.config`; see `mechanism_setting`. On
    a SASL_SSL listener `ssl.client.auth` has an effect only as a setting of the listener itself."""
    values = {name: value for name, value in config.values.items() if not name.startswith(LISTENER)}
    if listener.protocol == "SASL_SSL":
        values["ssl.client.auth"] = "none"
    prefix = listener.prefix
    for name, value in config.values.items():
        if name.startswith(prefix):
            values[name.removeprefix(prefix)] = value
    return values


REAUTHENTICATION: Final = "connections.max.reauth.ms"


def mechanism_setting(settings: Mapping[str, Any], mechanism: str, name: str) -> Any:
    """Return a setting of one SASL mechanism from the settings of its listener; None if it is not set.

    Only `connections.max.reauth.ms` has the listener's or the broker's value as its default."""
    default = settings[name] if name == REAUTHENTICATION else None
    return settings.get(f"{mechanism.lower()}.{name}", default)


def _listener(endpoint: _Endpoint, protocol: str, advertised: _Endpoint | None) -> Listener:
    if advertised is None:
        return Listener(endpoint.name, protocol, endpoint.host, endpoint.port, is_advertised=False)
    host = "" if advertised == endpoint and advertised.host in META_ADDRESSES else advertised.host
    return Listener(endpoint.name, protocol, endpoint.host, endpoint.port, True, host, advertised.port)


def _check_advertised(
    advertised: Mapping[str, _Endpoint], listeners: tuple[Listener, ...], *, is_set: bool
) -> None:
    """Raise `ConfigError` if an advertised listener does not exist or no client can connect to it."""
    if not is_set:
        return
    names = [listener.name for listener in listeners]
    if not set(advertised) <= set(names):
        raise ConfigError(
            f"{ADVERTISED} listener names must be equal to or a subset of the ones defined in {LISTENERS}."
            f" Found {','.join(advertised)}. The valid options based on the current configuration"
            f" are {','.join(names)}"
        )
    for endpoint in advertised.values():
        if endpoint.host in META_ADDRESSES:
            raise ConfigError(
                f"{ADVERTISED} cannot use the nonroutable meta-address {endpoint.host}."
                " Use a routable IP address."
            )


# Names and protocols


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """Return the security protocol of each listener name of `listener.security.protocol.map`."""
    protocols = {}
    for entry in config.text(PROTOCOL_MAP).split(","):
        if not entry.strip():
            continue
        name, separator, protocol = entry.rpartition(":")
        if not separator:
            raise ConfigError(
                f"Error parsing configuration property '{PROTOCOL_MAP}': {entry.strip()} has no protocol"
            )
        if protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol.strip()}` defined in {PROTOCOL_MAP}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _controllers(config: BrokerConfig) -> frozenset[str]:
    names = config.words(CONTROLLERS) or (DEFAULT_CONTROLLER,)
    return frozenset(name.upper() for name in names)


def _is_set(config: BrokerConfig, name: str) -> bool:
    return config.origin(name).source is not Source.DEFAULT


# Endpoints


def _endpoints(
    texts: Iterable[str], protocols: Mapping[str, str], controllers: frozenset[str], *, distinct_ports: bool
) -> list[_Endpoint]:
    shown = f"[{', '.join(texts)}]"
    try:
        endpoints = [_endpoint(text) for text in texts]
        for endpoint in endpoints:
            if endpoint.name not in protocols and endpoint.name not in controllers:
                raise ConfigError(f"No security protocol defined for listener {endpoint.name}")
        if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
            raise ConfigError(f"Each listener must have a different name, listeners: {shown}")
        if distinct_ports:
            _check_ports(endpoints, shown)
    except ConfigError as error:
        raise ConfigError(f"Error creating broker listeners from '{shown}': {error}") from None
    return endpoints


_URI: Final = r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)"


def _endpoint(text: str) -> _Endpoint:
    found = re.fullmatch(_URI, text)
    if found is None:
        raise ConfigError(f"Unable to parse {text} to a broker endpoint")
    name, host, digits = found.groups()
    port = int(digits) if len(digits) < 10 else -1
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"port out of range:{digits}")
    return _Endpoint(name.upper(), host, port)


def _check_ports(endpoints: Iterable[_Endpoint], shown: str) -> None:
    """Raise `ConfigError` if two endpoints have the same port, except an IPv4 and an IPv6 address."""
    by_port: dict[int, list[str]] = defaultdict(list)
    for endpoint in endpoints:
        by_port[endpoint.port].append(endpoint.host)
    for port, hosts in by_port.items():
        if port == 0 or len(hosts) < 2:
            continue
        versions = [_ip_version(host) for host in hosts]
        if versions.count(0) > 1:
            raise ConfigError(f"Each listener must have a different port, listeners: {shown}")
        addresses = [version for version in versions if version]
        if len(addresses) != 2:
            raise ConfigError(
                "Each listener must have a different port unless exactly one listener has an IPv4 address and"
                f" the other IPv6 address, listeners: {shown}, port: {port}"
            )
        if sorted(addresses) != [4, 6] or len(addresses) < len(hosts):
            raise ConfigError(
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6,"
                f" listeners: {shown}, port: {port}"
            )


def _ip_version(host: str) -> int:
    """Return 4 or 6 for an IP address, 0 for a host name or an empty host."""
    try:
        return ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0
