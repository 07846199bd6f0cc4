"""`--profile` and the configuration file: defaults of options, their order, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import CommandResult, call
from tests.client.scripted import ScriptedBroker

from konvene.cli.profiles import config_path

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of `KONVENE_CONFIG`, which does not exist yet."""
    for name in ("KONVENE_PROFILE", "KONVENE_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config.toml"
    monkeypatch.setenv("KONVENE_CONFIG", str(path))
    return path


def topics_of(config: Path, text: str, *args: str) -> CommandResult:
    config.write_text(text)
    return call(None, *args, "topics", "list")


def test_profile_names_the_cluster(config: Path) -> None:
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(orders=1)]
        text = f'[profiles.prod]\nbootstrap-server = "{broker.address}"\n'
        assert topics_of(config, text, "--profile", "prod") == (0, "orders\n", "")


def test_profile_of_the_environment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONVENE_PROFILE", "prod")
    result = topics_of(config, f'[profiles.prod]\nbootstrap-server = "{UNREACHABLE}"\n')
    assert f"cannot connect to {UNREACHABLE}" in result.err


def test_profile_overrides_defaults_and_the_command_line_overrides_both(config: Path) -> None:
    text = (
        '[defaults]\nbootstrap-server = "127.0.0.1:1"\njson = true\n'
        '[profiles.prod]\nbootstrap-server = "127.0.0.1:2"\n'
    )
    assert "cannot connect to 127.0.0.1:1" in topics_of(config, text).err
    assert "cannot connect to 127.0.0.1:2" in topics_of(config, text, "--profile", "prod").err
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(orders=1)]
        result = call(broker, "--profile", "prod", "topics", "list")
    assert result.json[0]["topic"] == "orders"


def test_environment_of_an_option_overrides_the_profile_with_a_note(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONVENE_BOOTSTRAP_SERVER", "127.0.0.1:2")
    result = topics_of(config, '[profiles.prod]\nbootstrap-server = "127.0.0.1:1"\n', "--profile", "prod")
    assert result.err.splitlines()[:2] == [
        "KONVENE_BOOTSTRAP_SERVER=127.0.0.1:2 overrides bootstrap-server = 127.0.0.1:1 of the profile.",
        "konvene: cannot connect to 127.0.0.1:2: connection refused",
    ]


def test_defaults_of_lists_paths_and_numbers(config: Path) -> None:
    """A relative path begins at the directory of the file; one value is a list of one."""
    (config.parent / "client.properties").write_text("security.protocol=SASL_SSL\n")
    result = topics_of(
        config, '[defaults]\ntimeout = 300\ncommand-config = "client.properties"\ngroup = "g"\n'
    )
    assert f"{config.parent / 'client.properties'}: sasl.mechanism is not set" in result.err
    config.write_text(f'[defaults]\nbootstrap-server = "{UNREACHABLE}"\ngroup = ["g", "h"]\ntimeout = 300\n')
    assert "cannot connect" in call(None, "groups", "describe").err


@pytest.mark.parametrize(
    "text, args, message",
    [
        ("[profiles.prod]\n", ["--profile", "prdo"], "no profile prdo in {file}; did you mean prod?\n"),
        ("[profiles.a]\n[profiles.b]\n", ["--profile", "prod"], "no profile prod in {file}; profiles: a, b"),
        ("", ["--profile", "prod"], "there is no profile prod in {file}\n"),
        ("[defaults]\ntimout = 1\n", [],
         "{file}: [defaults] timout: no command has the option --timout; did you mean timeout?"),
        ("[profiles.prod]\ntimeout = 'soon'\n", ["--profile", "prod"],
         "{file}: [profiles.prod] timeout: 'soon' is not a valid integer range"),
        ("[defaults]\njson = 'yes'\n", [], "{file}: [defaults] json: write true or false"),
        ("[defaults]\nbootstrap-server = true\n", [], "{file}: [defaults] bootstrap-server: wrong type"),
        ("[profile.prod]\n", [], "{file}: unknown table or key profile\n  Write [defaults] or [profiles."),
        ("profiles = 1\n", [], "{file}: profiles is not a table"),
        ("[profiles]\ntimeout = 1\n", [], "{file}: profiles.timeout is not a table"),
        ("[defaults\n", [], "{file}: Expected ']'"),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_place(config: Path, text: str, args: list[str], message: str) -> None:
    result = topics_of(config, text, *args)
    assert (result.code, result.out) == (2, "")
    assert message.format(file=config) in result.err


def test_keys_of_other_commands_are_accepted(config: Path) -> None:
    """A profile may have defaults of commands that are not called."""
    result = topics_of(
        config, f'[defaults]\nbootstrap-server = "{UNREACHABLE}"\nheartbeat-interval-ms = 3000\n'
    )
    assert "cannot connect" in result.err


def test_missing_file_is_an_error_only_if_it_is_named(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "there is no such file" in call(None, "topics", "list").err
    monkeypatch.delenv("KONVENE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert "cannot connect" in call(None, "topics", "list", "--bootstrap-server", UNREACHABLE).err


def test_place_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KONVENE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_path() == tmp_path / "konvene" / "config.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_path() == tmp_path / ".config" / "konvene" / "config.toml"


def test_help_shows_the_default_of_the_profile(config: Path) -> None:
    config.write_text('[profiles.prod]\nbootstrap-server = "kafka1:9092"\n')
    result: Any = call(None, "--profile", "prod", "topics", "list", "--help")
    assert "kafka1:9092" in result.out


def test_names_of_the_command_line_replace_those_of_a_profile(config: Path) -> None:
    """A default of --topic or --group is ignored if the command line has an argument or --all-groups."""
    config.write_text('[defaults]\ntopic = "payments"\ngroup = "readers"\n')
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(orders=1, payments=1)]
        assert [t["topic"] for t in call(broker, "topics", "list", "--json").json] == ["payments"]
        assert "there is no topic none" in call(broker, "topics", "delete", "none").err
        produced = call(broker, "produce", "none", "--timeout", "500", stdin="x\n")
        assert "konvene: topic none: UNKNOWN" in produced.err
    for words in (["other"], ["--all-groups"]):
        command = ["groups", "describe", *words, "--bootstrap-server", UNREACHABLE]
        assert "cannot connect" in call(None, *command).err
