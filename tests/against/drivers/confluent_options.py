"""confluent-kafka's options of a `start` command: see `options` in driver.py."""

import time
from typing import Any

from confluent_kafka import KafkaError
from driver import Row, emit

TOKEN_S = 3600


def own_options(command: Row) -> dict[str, Any]:
    """Return the library's own options of a command; with some the client's errors are events."""
    options = dict(command.get("options", {}))
    if options:
        options["error_cb"] = _emit_error
    token = options.pop("token", None)
    if token is not None:
        options["oauth_cb"] = lambda _config: (token, time.time() + TOKEN_S)
    return options


def _emit_error(error: KafkaError) -> None:
    emit("error", error={"code": error.code(), "name": error.name().lstrip("_"), "message": error.str()})
