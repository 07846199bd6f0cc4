"""Errors of `konvene.client`: one family with `ClientError` as its base.

Failures of a connection or of the protocol have classes of their own. An error code of a broker is a
`KafkaError` with the code. `retriable` is whether the same request may be sent again, possibly to another
broker. Messages contain what failed and where; `konvene.cli` adds what to do about it.
"""

from __future__ import annotations

from konvene.errors import Errors


class ClientError(Exception):
    """Base class of all errors that the client raises."""

    retriable = False


class Misconfigured(ClientError):
    """An invalid setting or argument; nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended before the response. The request may have been processed."""

    retriable = True


class CannotConnect(ConnectionLost):
    """No connection could be made: connection refused, unknown host, or unreachable network."""


class AuthenticationFailed(ClientError):
    """The broker does not accept the client's credentials, or the client does not accept the broker's.

    Another attempt with the same settings fails too."""


class RequestTimedOut(ClientError):
    """No response within the request timeout. The connection is closed, as responses arrive in order."""

    retriable = True


class UnsupportedVersion(ClientError):
    """The broker and the client have no common version of the API that has the requested feature."""


class BadResponse(ClientError):
    """The response could not be decoded."""


class CorruptRecord(BadResponse):
    """A batch in the log of a partition is damaged: the broker reports CORRUPT_MESSAGE, or its checksum or
    its lengths are wrong. As in Kafka's consumer, the read is not retried."""


class OutOfTurn(ClientError):
    """A call that is invalid in the current state, such as a commit without a transaction; nothing was
    sent."""


class WokenUp(ClientError):
    """A waiting call was interrupted by `wakeup`."""


class TransactionFailed(ClientError):
    """The transaction can only be aborted; `__cause__` is the error of the failed request."""


class KafkaError(ClientError):
    """An error code in a response of a broker, with the broker's message if it gave one.

    A code that has a subclass of its own is raised as that subclass."""

    def __new__(cls, code: int, message: str | None = None, *, about: str = "") -> KafkaError:
        return super().__new__(_LEAVES.get(code, cls) if cls is KafkaError else cls)

    def __init__(self, code: int, message: str | None = None, *, about: str = "") -> None:
        self.code = code
        self.name = error_name(code)
        self.message = message
        self.about = about
        """Subject of the error, such as `group billing`."""
        text = f"{self.name}: {message}" if message else self.name
        super().__init__(f"{about}: {text}" if about else text)

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether Kafka's clients retry after this code."""
        return is_retriable(self.code)


class ProducerFenced(KafkaError):
    """Another producer uses the transactional id, or the transaction has timed out."""


class StreamsInvalidTopology(KafkaError):
    """The topology of a streams group member is invalid."""


class StreamsInvalidTopologyEpoch(KafkaError):
    """The topology differs from the group's, but has the same epoch."""


class StreamsTopologyFenced(KafkaError):
    """The topology of the member is older than the group's."""


_LEAVES: dict[int, type[KafkaError]] = {
    Errors.PRODUCER_FENCED: ProducerFenced,
    Errors.STREAMS_INVALID_TOPOLOGY: StreamsInvalidTopology,
    Errors.STREAMS_INVALID_TOPOLOGY_EPOCH: StreamsInvalidTopologyEpoch,
    Errors.STREAMS_TOPOLOGY_FENCED: StreamsTopologyFenced,
}
"""Classes of codes that callers catch: fencing, and the errors of KIP-1071."""


def error_name(code: int) -> str:
    """Return the name of an error code; `error code N` for an unknown one."""
    try:
        return Errors(code).name
    except ValueError:
        return f"error code {code}"


def is_retriable(code: int) -> bool:
    """Return True if Kafka's clients retry a request after this code."""
    try:
        return Errors(code).retriable
    except ValueError:
        return False


def raise_for(code: int, message: str | None = None, *, about: str = "") -> None:
    """Raise `KafkaError` unless the code is NONE. `about` is the subject of the request."""
    if code != 0:
        raise KafkaError(code, message, about=about)
