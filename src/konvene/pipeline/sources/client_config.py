"""How tasks connect to a live cluster: a value that travels to workers, without secrets.

Spark may show the options of a source, and stores them with views and plans; so credentials are not among
them. They are in a properties file, which the driver and each executor read: at the same path on each
machine, added with `SparkContext.addFile`, or named by KONVENE_COMMAND_CONFIG in the environment of the
process that connects."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from konvene.client.errors import Misconfigured
from konvene.client.net.settings import (
    ClientSettings,
    is_client_setting,
    read_properties,
    settings_in,
    settings_of,
)
from konvene.client.security_names import SECRETS

__all__ = ["CONFIG_OPTION", "NO_CONFIG", "PREFIX", "ClientConfig", "client_config"]

PREFIX: Final = "kafka."
CONFIG_OPTION: Final = "command.config"
CONFIG_VARIABLE: Final = "KONVENE_COMMAND_CONFIG"
SERVERS: Final = "bootstrap.servers"


class ClientConfig(NamedTuple):
    """A properties file, and settings that override it. Without a file that of the environment is read."""

    file: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    def client_settings(self) -> ClientSettings:
        """Return the settings of a connection from this process. Raises `Misconfigured`."""
        name = self.file or os.environ.get(CONFIG_VARIABLE, "")
        path = _local_path(name) if name else None
        given = read_properties(path) if path is not None else {}
        return settings_in({**given, **dict(self.settings)}, path)


NO_CONFIG: Final = ClientConfig()


def client_config(options: Mapping[str, str], *, source: str = "konvene-log") -> ClientConfig:
    """Return how the options of a source connect: `command.config`, and settings that begin with `kafka.`.

    `source` is the format's name, for messages.

    Raises ValueError for a secret or an unknown setting, without its value."""
    file = options.get(CONFIG_OPTION, "")
    settings = {}
    for option, value in options.items():
        name = option.lower().removeprefix(PREFIX)
        if not option.lower().startswith(PREFIX) or name == SERVERS:
            continue
        if name in SECRETS:
            raise ValueError(
                f"{option}=[hidden] is a secret, and Spark may show options; put it into a properties file,"
                f" and name that with {CONFIG_OPTION} or {CONFIG_VARIABLE}"
            )
        if not is_client_setting(name) and name != "client.id":
            raise ValueError(f"{source} has no option {option}")
        settings[name] = value
    if settings and not file and not os.environ.get(CONFIG_VARIABLE):
        try:
            settings_of(settings)
        except Misconfigured as error:
            raise ValueError(str(error)) from None
    return ClientConfig(file, tuple(sorted(settings.items())))


def _local_path(name: str) -> Path:
    """Return the path of a file on this machine; a name may be that of a file that was added to Spark."""
    path = Path(name)
    if path.exists() or "pyspark" not in sys.modules:
        return path
    from pyspark import SparkFiles

    try:
        added = Path(SparkFiles.get(path.name))
    except Exception:  # Outside of a session there is no directory of added files.
        return path
    return added if added.exists() else path
