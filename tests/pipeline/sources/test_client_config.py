"""How tasks connect: a file and settings, of which none is a secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from konvene.client.errors import Misconfigured
from konvene.client.security_names import SECRETS
from konvene.pipeline.sources.client_config import NO_CONFIG, client_config

FILE = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=marked-secret\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return str(path)


def test_settings_override_the_file(file: str) -> None:
    """The value that travels to workers has the path only."""
    options = {
        "command.config": file,
        "kafka.bootstrap.servers": "b:1",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
    }
    config = pickle.loads(pickle.dumps(client_config(options)))
    assert config == (file, (("sasl.mechanism", "SCRAM-SHA-256"),))
    security = config.client_settings().security
    assert (security.mechanism, security.password) == ("SCRAM-SHA-256", "marked-secret")
    assert "marked-secret" not in repr(config)


def test_the_environment_names_the_file(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KONVENE_COMMAND_CONFIG", file)
    assert NO_CONFIG.client_settings().security.username == "alice"
    assert client_config({"kafka.client.id": "me"}).client_settings().client_id == "me"
    monkeypatch.delenv("KONVENE_COMMAND_CONFIG")
    assert NO_CONFIG.client_settings().security.protocol == "PLAINTEXT"


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_each_secret_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"=\[hidden\] is a secret") as raised:
        client_config({f"kafka.{name}": "marked-secret"})
    assert "marked-secret" not in str(raised.value)


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(Misconfigured, match="/nowhere cannot be read"):
        client_config({"command.config": "/nowhere"}).client_settings()
