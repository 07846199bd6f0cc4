"""Defaults of options from a file: `~/.config/konvene/config.toml`, or the one that `KONVENE_CONFIG` names.

    [defaults]
    timeout = 10000

    [profiles.prod]
    bootstrap-server = "kafka1:9092,kafka2:9092"
    command-config = "prod.properties"

A key is the name of an option, of any command; it is the default of every command that has the option. The
table `[defaults]` always applies, a profile with `--profile NAME` or `KONVENE_PROFILE`. Options on the
command line come first, then environment variables of options, the profile, `[defaults]`, and the built-in
defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from konvene.cli.options import Failure

__all__ = ["BadConfig", "Defaults", "config_path", "load_defaults", "read_config", "require_known_keys"]

FILE_VARIABLE = "KONVENE_CONFIG"


class BadConfig(Failure):
    """An error in the configuration file, or an unknown profile."""

    exit_code = 2


class Entry(NamedTuple):
    """A value of the file, and the table that has it."""

    value: Any
    table: str


class Defaults(NamedTuple):
    """Defaults by the name of the option, without its hyphens."""

    path: Path
    entries: Mapping[str, Entry]

    def for_command(self, command: click.Command, context: click.Context) -> dict[str, Any]:
        """Return the `default_map` of a command and its subcommands. Raises `BadConfig` for a value that its
        option does not accept."""
        found: dict[str, Any] = {}
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    found[name] = self.for_command(child, context)
        for parameter in command.params:
            for key in _keys(parameter):
                if key in self.entries and parameter.name is not None:
                    found[parameter.name] = self._checked(key, parameter, context)
        return found

    def _checked(self, key: str, parameter: click.Parameter, context: click.Context) -> Any:
        """Return the value of a key as its option's default: text is not converted yet, as click does it."""
        value, table = self.entries[key]
        if parameter.multiple:
            value = value if isinstance(value, list) else [value]
        if isinstance(parameter.type, click.Path):
            value = [self._path(v) for v in value] if parameter.multiple else self._path(value)
        try:
            if isinstance(value, bool) != _is_switch(parameter) or isinstance(value, dict):
                raise click.BadParameter("write true or false" if _is_switch(parameter) else "wrong type")
            parameter.type_cast_value(context, value)
        except (click.BadParameter, TypeError, ValueError) as error:
            reason = error.message if isinstance(error, click.BadParameter) else str(error)
            raise BadConfig(f"{self.path}: [{table}] {key}: {reason.rstrip('.')}") from None
        return value

    def _path(self, value: Any) -> Any:
        """Return a path: `~` is the home directory, and relative paths begin at the directory of the file."""
        return str(self.path.parent / Path(value).expanduser()) if isinstance(value, str) else value


def config_path() -> Path:
    """Return the path of the configuration file, which may not exist."""
    explicit = os.environ.get(FILE_VARIABLE)
    if explicit:
        return Path(explicit).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "konvene" / "config.toml"


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the table `defaults` and the profiles by name; empty ones if there is no file. Raises
    `BadConfig`."""
    import tomllib

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if os.environ.get(FILE_VARIABLE):
            raise BadConfig(f"{path}: there is no such file", f"{FILE_VARIABLE} names it.") from None
        return {}, {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadConfig(f"{path}: {reason}") from None
    for key in document:
        if key not in ("defaults", "profiles"):
            raise BadConfig(f"{path}: unknown table or key {key}", "Write [defaults] or [profiles.NAME].")
    defaults, profiles = document.get("defaults", {}), document.get("profiles", {})
    for name, table in {"defaults": defaults, "profiles": profiles}.items():
        if not isinstance(table, dict):
            raise BadConfig(f"{path}: {name} is not a table")
    for name, table in profiles.items():
        if not isinstance(table, dict):
            raise BadConfig(f"{path}: profiles.{name} is not a table", f"Write [profiles.{name}].")
    return defaults, profiles


def load_defaults(profile: str | None) -> Defaults:
    """Read the defaults and the profile of that name from the file. Raises `BadConfig` if it has none."""
    path = config_path()
    defaults, profiles = read_config(path)
    if profile is not None and profile not in profiles:
        names = f"; profiles: {', '.join(profiles)}" if profiles else ""
        raise BadConfig(f"there is no profile {profile} in {path}{_nearest(profile, profiles) or names}")
    entries = {key: Entry(value, "defaults") for key, value in defaults.items()}
    if profile is not None:
        entries |= {key: Entry(value, f"profiles.{profile}") for key, value in profiles[profile].items()}
    return Defaults(path, entries)


def require_known_keys(defaults: Defaults, command: click.Command, root: click.Group) -> None:
    """Raise `BadConfig` for the first key that is not an option of any command.

    The options of `command` are compared first, because all others have to be imported."""
    unknown = defaults.entries.keys() - set(_all_keys([command]))
    if not unknown:
        return
    context = click.Context(root)
    commands = [root.get_command(context, name) for name in root.list_commands(context)]
    known = set(_all_keys(each for each in commands if each is not None))
    for key in sorted(unknown - known):
        raise BadConfig(
            f"{defaults.path}: [{defaults.entries[key].table}] {key}: no command has the option --{key}"
            f"{_nearest(key, known)}"
        )


def _all_keys(commands: Iterable[click.Command]) -> Iterator[str]:
    for command in commands:
        for parameter in command.params:
            yield from _keys(parameter)
        if isinstance(command, click.Group):
            context = click.Context(command)
            children = (command.get_command(context, name) for name in command.list_commands(context))
            yield from _all_keys(each for each in children if each is not None)


def _keys(parameter: click.Parameter) -> list[str]:
    """Return the keys of an option. One of several that set the same parameter, and --version, have none."""
    if not isinstance(parameter, click.Option) or parameter.is_eager:
        return []
    if parameter.is_flag and not parameter.is_bool_flag:
        return []
    return [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]


def _is_switch(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known name; empty if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
