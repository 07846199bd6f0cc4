"""The security of a broker's listeners: TLS contexts and SASL mechanisms, made of settings and credentials.

What a listener needs is checked before the broker starts. TLS material is replaced while the broker serves:
when an administrator alters it, and when a file has changed. Material that cannot be used is refused, and
the old one stays in place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from konvene.broker.net.endpoint import Endpoint
from konvene.configs import ConfigError
from konvene.configs.errors import RefusedForBroker
from konvene.configs.listeners import Listener, listener_settings, mechanism_setting
from konvene.security.session import SecurityProtocol

if TYPE_CHECKING:
    import asyncio
    import ssl

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.key_sets import KeySetSource
    from konvene.broker.settings import BrokerSettings
    from konvene.configs import BrokerConfig
    from konvene.runtime.environment import Environment
    from konvene.security.oauth.jwt import AccessToken
    from konvene.security.sasl.authenticator import SaslListener
    from konvene.security.sasl.jaas import LoginModule
    from konvene.security.sasl.mechanisms import SaslServer
    from konvene.security.tls.reload import ServerTls

log = logging.getLogger("konvene.security")

UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".OAuthBearerUnsecuredValidatorCallbackHandler"
)
"""Class of Kafka that accepts tokens without a signature: named explicitly, it is accepted with a warning."""

GSSAPI = "GSSAPI"
INCOMPATIBLE = "org.apache.kafka.common.config.ConfigException"
UNUSABLE = "org.apache.kafka.common.errors.InvalidConfigurationException"
"""Errors of Kafka, by which its messages about TLS settings begin."""

OAUTHBEARER = "OAUTHBEARER"
USER_OPTION = "user_"


class ListenerSecurity:
    """Makes the endpoints of a broker's listeners, and keeps their TLS material current."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        environment: Environment,
        settings: BrokerSettings,
        catalogue: ClusterCatalogue,
    ) -> None:
        self._loop = loop
        self._environment = environment
        self._settings = settings
        self._catalogue = catalogue
        self._secret = environment.fresh_uuid().bytes + environment.fresh_uuid().bytes
        self._listeners: dict[str, tuple[Listener, Endpoint]] = {}
        self._tls: dict[str, ServerTls] = {}
        self._key_sets: list[KeySetSource] = []

    def __repr__(self) -> str:
        return f"<security of listeners {', '.join(self._listeners)}>"

    # --- making endpoints ---

    def open(self, listener: Listener) -> Endpoint:
        """Return the endpoint of a listener. Raises `ConfigError` if its settings are incomplete."""
        settings = listener_settings(self._settings.config, listener)
        endpoint = Endpoint(listener.name, SecurityProtocol[listener.protocol], settings=settings)
        if listener.has_tls:
            from konvene.security.tls.principal_mapping import PrincipalMapper
            from konvene.security.tls.reload import ServerTls

            try:
                self._tls[listener.name] = ServerTls(settings)
                endpoint.principal_of = PrincipalMapper(settings["ssl.principal.mapping.rules"]).principal_of
            except ValueError as error:
                raise ConfigError(f"listener {listener.name}: {error}") from None
        if listener.has_sasl:
            endpoint.sasl = self._sasl(listener, settings)
        self._listeners[listener.name] = listener, endpoint
        return endpoint

    def context_provider(self, listener: Listener) -> Callable[[], ssl.SSLContext] | None:
        """Return a function that returns the TLS context of the next connection; None without TLS."""
        tls = self._tls.get(listener.name)
        return None if tls is None else lambda: tls.context

    async def start(self) -> None:
        """Fetch the key sets that verify access tokens. Raises `ConfigError`."""
        for source in self._key_sets:
            try:
                await source.start()
            except (OSError, ValueError) as error:
                raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None

    async def close(self) -> None:
        """Stop fetching key sets."""
        for source in self._key_sets:
            await source.close()

    # --- SASL ---

    def _sasl(self, listener: Listener, settings: Mapping[str, Any]) -> SaslListener:
        from konvene.security.sasl.authenticator import SaslListener

        mechanisms = {
            mechanism: self._mechanism(listener, settings, mechanism)
            for mechanism in settings["sasl.enabled.mechanisms"]
        }
        if not mechanisms:
            raise ConfigError(f"listener {listener.name}: sasl.enabled.mechanisms is empty")
        return SaslListener(
            name=listener.name,
            security_protocol=SecurityProtocol[listener.protocol],
            mechanisms=mechanisms,
            max_reauth_ms={
                name: mechanism_setting(settings, name, "connections.max.reauth.ms") or 0
                for name in mechanisms
            },
            max_receive_bytes=settings["sasl.server.max.receive.size"],
            failure_delay_ms=settings["connection.failed.authentication.delay.ms"],
        )

    def _mechanism(
        self, listener: Listener, settings: Mapping[str, Any], mechanism: str
    ) -> Callable[[], SaslServer]:
        """Return a function that begins an exchange of a mechanism. Raises `ConfigError`."""
        from konvene.broker.net.scram_users import ScramUsers
        from konvene.security.sasl.oauthbearer import OAuthBearerServer
        from konvene.security.sasl.plain import PlainServer
        from konvene.security.sasl.scram import MECHANISMS, ScramServer

        jaas = self._jaas(listener, settings, mechanism)
        if mechanism == "PLAIN":
            if jaas is None:
                name = f"{listener.prefix}plain.sasl.jaas.config"
                raise ConfigError(f'set {name} to PlainLoginModule required user_NAME="PASSWORD";')
            users = {
                name.removeprefix(USER_OPTION): password
                for name, password in jaas.options.items()
                if name.startswith(USER_OPTION)
            }
            return lambda: PlainServer(users)
        if mechanism in MECHANISMS:
            scram_users = ScramUsers(self._settings, self._catalogue)
            return lambda: ScramServer(
                mechanism,
                lambda user, is_token: scram_users.find(
                    mechanism, user, self._environment.wall_clock_ms(), is_token=is_token
                ),
                self._environment.fresh_uuid().hex,
                self._secret,
            )
        if mechanism == OAUTHBEARER:
            validate = self._token_validator(listener, settings)
            return lambda: OAuthBearerServer(validate)
        if mechanism == GSSAPI:
            return self._kerberos(listener, settings, jaas)
        raise ConfigError(
            f"listener {listener.name}: SASL mechanism {mechanism} is not supported; set"
            f" sasl.enabled.mechanisms to some of PLAIN, {', '.join(MECHANISMS)}, {OAUTHBEARER}, {GSSAPI}"
        )

    def _jaas(self, listener: Listener, settings: Mapping[str, Any], mechanism: str) -> LoginModule | None:
        from konvene.security.sasl.jaas import parse_jaas

        text = mechanism_setting(settings, mechanism, "sasl.jaas.config")
        if text is None:
            return None
        try:
            return parse_jaas(text.reveal() if hasattr(text, "reveal") else text)
        except ValueError as error:
            name = f"{listener.prefix}{mechanism.lower()}.sasl.jaas.config"
            raise ConfigError(f"{name}: {error}") from None

    def _kerberos(
        self, listener: Listener, settings: Mapping[str, Any], jaas: LoginModule | None
    ) -> Callable[[], SaslServer]:
        """Return a function that begins an exchange of GSSAPI. Raises `ConfigError`."""
        from konvene.security.kerberos.contexts import acceptor, default_realm
        from konvene.security.kerberos.login import broker_login
        from konvene.security.kerberos.names import ShortNamer
        from konvene.security.sasl.gssapi import GssapiServer

        if jaas is None:
            name = f"{listener.prefix}gssapi.sasl.jaas.config"
            raise ConfigError(
                f"set {name} to com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
                ' storeKey=true keyTab="FILE" principal="NAME/HOST@REALM";'
                f" or sasl.enabled.mechanisms to others than {GSSAPI}, the default"
            )
        try:
            accept = acceptor(broker_login(jaas, settings["sasl.kerberos.service.name"]))
            names = ShortNamer(settings["sasl.kerberos.principal.to.local.rules"], default_realm())
        except ValueError as error:
            raise ConfigError(f"listener {listener.name}: {GSSAPI}: {error}") from None
        return lambda: GssapiServer(accept(), names.short_name)

    def _token_validator(
        self, listener: Listener, settings: Mapping[str, Any]
    ) -> Callable[[str], AccessToken]:
        from konvene.broker.net.key_sets import KeySetSource
        from konvene.security.oauth.jwt import UnsecuredJwtValidator

        prefix = f"{OAUTHBEARER.lower()}."
        own = {name.removeprefix(prefix): v for name, v in settings.items() if name.startswith(prefix)}
        merged = {**settings, **own}
        if merged.get("sasl.server.callback.handler.class") == UNSECURED:
            log.warning(
                "listener %s accepts OAUTHBEARER tokens without a signature, which anyone can make",
                listener.name,
            )
            unsecured = UnsecuredJwtValidator()
            return lambda token: unsecured.validate(token, self._environment.wall_clock_ms())
        try:
            source = KeySetSource(merged, self._loop, self._environment.wall_clock_ms)
        except ValueError as error:
            raise ConfigError(f"listener {listener.name}: {error}") from None
        self._key_sets.append(source)
        return source.validate

    # --- changes while the broker serves ---

    @property
    def has_tls(self) -> bool:
        """Return True if a listener has TLS."""
        return bool(self._tls)

    def check(self, config: BrokerConfig) -> None:
        """Check changed TLS material before the settings are accepted.

        As in Kafka, only if settings of it differ. Raises `RefusedForBroker` with Kafka's message."""
        from konvene.security.tls.reload import IncompatibleStore
        from konvene.security.tls.stores import InvalidStore

        for name, tls in self._tls.items():
            settings = listener_settings(config, self._listeners[name][0])
            if not tls.has_changed(settings):
                continue
            try:
                tls.check(settings)
            except InvalidStore as error:
                kind = INCOMPATIBLE if isinstance(error, IncompatibleStore) else UNUSABLE
                raise RefusedForBroker(
                    f"Invalid value {INCOMPATIBLE}: Validation of dynamic config update of SSLFactory"
                    f" failed: {kind}: {error} for configuration Invalid dynamic configuration"
                ) from None

    def reconfigured(self) -> None:
        """Use the current settings for new connections; files that have changed are read again.

        Unusable TLS material keeps the old one."""
        for name, (listener, endpoint) in self._listeners.items():
            endpoint.settings = listener_settings(self._settings.config, listener)
            tls = self._tls.get(name)
            if tls is not None and (tls.has_changed(endpoint.settings) or tls.has_changed_files()):
                self._replace(name, endpoint.settings)

    def reload_changed_files(self) -> None:
        """Read the key stores and trust stores again whose files have changed."""
        for name, tls in self._tls.items():
            if tls.has_changed_files():
                self._replace(name, self._listeners[name][1].settings)

    def _replace(self, name: str, settings: Mapping[str, Any]) -> None:
        from konvene.security.tls.stores import InvalidStore

        try:
            self._tls[name].replace(settings)
        except InvalidStore as error:
            log.warning("listener %s keeps its TLS material: %s", name, error)
        else:
            log.info("listener %s uses new TLS material", name)
