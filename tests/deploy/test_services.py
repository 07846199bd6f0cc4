"""The Dockerfile, the compose file, the systemd unit and Prometheus' configuration fit this broker."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from konvene.cli.serve import serve
from konvene.configs import BrokerConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "konvene.service"
PROPERTIES = DEPLOY / "systemd" / "server.properties"
DATA_DIR = "/var/lib/konvene"


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def instruction(name: str) -> str:
    """Return the arguments of the last such instruction."""
    return [arguments for each, arguments in dockerfile() if each == name][-1]


def serve_options(arguments: list[str]) -> dict[str, Any]:
    """Parse the arguments of `konvene serve`; a file of `--config` need not exist here."""
    replaced = [str(PROPERTIES) if each == "/etc/konvene/server.properties" else each for each in arguments]
    parameters: dict[str, Any] = serve.make_context("serve", replaced).params
    return parameters


def check_settings(parameters: dict[str, Any]) -> BrokerConfig:
    """Load the settings of a command line: there is none that the broker does not know or does not obey."""
    text = Path(parameters["config"]).read_text("utf-8") if parameters["config"] else None
    pairs = [tuple(pair.split("=", 1)) for pair in parameters["overrides"]]
    config, notices = BrokerConfig.load(text, pairs)
    assert notices == ()
    return config


def test_dockerfile_copies_what_the_package_needs() -> None:
    """Every copied path exists, and `.dockerignore` lets it through."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = [
        source
        for each, arguments in dockerfile()
        if each == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    ]
    assert copied
    assert set(copied) == allowed
    assert all((ROOT / source).exists() for source in copied)
    extras = re.search(r"'\.\[(.+)\]'", (ROOT / "Dockerfile").read_text())
    assert extras is not None
    declared = (ROOT / "pyproject.toml").read_text("utf-8")
    assert all(f"\n{extra} = [" in declared for extra in extras[1].split(","))


def test_container_runs_the_broker_without_root() -> None:
    """The data directory is the volume; ports and user fit; SIGTERM stops the broker."""
    assert json.loads(instruction("ENTRYPOINT")) == ["konvene"]
    command, *arguments = json.loads(instruction("CMD"))
    assert command == "serve"
    parameters = serve_options(arguments)
    config = check_settings(parameters)
    assert str(parameters["data_dir"]) == instruction("VOLUME") == DATA_DIR
    assert instruction("EXPOSE").split() == ["9092", str(parameters["metrics_port"])]
    assert (parameters["host"], config["konvene.metrics.host"]) == ("0.0.0.0", "0.0.0.0")
    assert instruction("STOPSIGNAL") == "SIGTERM"
    assert instruction("USER") == "konvene"
    users = [arguments for each, arguments in dockerfile() if each == "RUN" and "useradd" in arguments]
    assert len(users) == 1
    assert f"--owner konvene --group konvene {DATA_DIR}" in users[0]
    assert "KONVENE_LOG_FORMAT=json" in instruction("ENV")


def health_check() -> list[str]:
    """Return the command of HEALTHCHECK."""
    command: list[str] = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    return command


@pytest.fixture
def metrics_port(tmp_path: Path) -> Iterator[str]:
    """Run a broker with the container's command, on free ports and another directory; yield a port."""
    arguments = json.loads(instruction("CMD"))[1:]
    replaced = [str(tmp_path) if each == DATA_DIR else "0" if each == "9404" else each for each in arguments]
    command = [sys.executable, "-m", "konvene", "serve", *replaced, "--port", "0"]
    command += ["--advertise", "localhost:9092"]
    environment = os.environ | {"KONVENE_LOG_FORMAT": "json"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as broker:
        try:
            assert broker.stdout is not None
            started = json.loads(broker.stdout.readline())
            yield re.search(r":(\d+)/metrics$", started["metrics_url"])[1]  # type: ignore[index]
        finally:
            broker.send_signal(signal.SIGTERM)
        assert broker.wait(60) == 0


def run_health_check(port: str) -> int:
    """Run the command of HEALTHCHECK against a port; return its exit code."""
    command = health_check()
    assert command[0] == "python"
    assert command[2].count("9404") == 1
    arguments = [each.replace("9404", port) for each in command[1:]]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=60, check=False)
    return done.returncode


def test_health_check_succeeds_only_with_a_broker(metrics_port: str) -> None:
    """Python alone is enough. A port with nothing behind it is a failure."""
    assert run_health_check(metrics_port) == 0
    assert run_health_check("1") == 1


def test_compose_file() -> None:
    """Its command is valid, the paths exist, and Prometheus scrapes the service."""
    path = DEPLOY / "docker" / "compose.yaml"
    document = yaml.safe_load(path.read_text("utf-8"))
    broker = document["services"]["konvene"]
    assert (path.parent / broker["build"] / "Dockerfile").is_file()
    command, *arguments = broker["command"]
    assert command == "serve"
    parameters = serve_options([re.sub(r"\$\{\w+:-(.+)\}", r"\1", each) for each in arguments])
    config = check_settings(parameters)
    assert (parameters["host"], parameters["advertise"]) == ("0.0.0.0", "localhost:9092")
    assert config["konvene.metrics.host"] == "0.0.0.0"
    assert f"konvene:{parameters['data_dir']}" in broker["volumes"]
    assert "konvene" in document["volumes"]
    for service in document["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (path.parent / source).exists(), source
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (job,) = scraped["scrape_configs"]
    assert job["job_name"] == "konvene"
    assert job["static_configs"] == [{"targets": [f"konvene:{parameters['metrics_port']}"]}]
    assert [(DEPLOY / "prometheus" / name).is_file() for name in scraped["rule_files"]] == [True]


def test_provisioning_of_grafana() -> None:
    """The data source is the service, and the dashboard is mounted in the provider's folder."""
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text("utf-8"))
    folder = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "konvene.yaml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/konvene.json" in mounted


def unit() -> dict[str, list[str]]:
    """Return the values of each key of the systemd unit."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_systemd_unit_runs_the_broker() -> None:
    """Options and settings are valid; the data directory is the state directory of an unprivileged user."""
    program, command, *arguments = shlex.split(unit()["ExecStart"][0])
    assert (program, command) == ("/opt/konvene/bin/konvene", "serve")
    parameters = serve_options(arguments)
    config = check_settings(parameters)
    assert config["konvene.metrics.port"] == 9404
    assert str(parameters["data_dir"]) == f"/var/lib/{unit()['StateDirectory'][0]}" == DATA_DIR
    assert unit()["DynamicUser"] == ["yes"]
    assert unit()["RestartPreventExitStatus"] == ["2"]


def test_commented_settings_are_valid() -> None:
    """Without the comment sign, each line is a setting that the broker accepts."""
    lines = [line.removeprefix("#") for line in PROPERTIES.read_text("utf-8").splitlines() if "=" in line]
    config, notices = BrokerConfig.load("\n".join(lines))
    assert notices == ()
    assert config["advertised.listeners"] == ("PLAINTEXT://broker.example.org:9092",)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """With a program that exists in place of the installed one."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text("utf-8").replace("/opt/konvene/bin/konvene", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_option_would_fail() -> None:
    """The checks above reject an option that `serve` does not have."""
    with pytest.raises(click.UsageError):
        serve_options(["--no-such-option"])
