"""The one error family of the client: what a caller of `konvene.client` can be told.

Two kinds of trouble are kept apart. A broker that cannot be reached, does not answer or cannot be understood
is one of the leaves below; a broker that answers with an error code is a `KafkaError` that carries the code.
`retriable` says whether the same request may be sent again, perhaps elsewhere. Texts say what and where;
what to do about it is for the one who talks to people (`konvene.cli`).
"""

from __future__ import annotations

from konvene.errors import Errors


class ClientError(Exception):
    """Anything that goes wrong between this client and a cluster."""

    retriable = False


class Misconfigured(ClientError):
    """A setting of the client that cannot be followed; nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came. Whether the request was carried out is not known."""

    retriable = True


class CannotConnect(ConnectionLost):
    """No connection could be made: nobody listens there, the name is unknown, the network is away."""


class RequestTimedOut(ClientError):
    """No answer within the request's time. The connection is closed, as a late answer blocks the rest."""

    retriable = True


class UnsupportedVersion(ClientError):
    """The broker and this client share no version of the API that can say what was asked."""


class BadResponse(ClientError):
    """The broker sent bytes that are not the answer they should be."""


class OutOfTurn(ClientError):
    """A call that makes no sense now, such as to commit what was not begun; nothing was sent."""


class WokenUp(ClientError):
    """Somebody asked that the call that waits should wait no longer."""


class TransactionFailed(ClientError):
    """The transaction can only be aborted: something in it failed (`__cause__` says what)."""


class KafkaError(ClientError):
    """An error code from a broker, with the broker's own words where it gave any.

    Codes that have a class of their own come as that class, wherever they are raised."""

    def __new__(cls, code: int, message: str | None = None, *, about: str = "") -> KafkaError:
        return super().__new__(_LEAVES.get(code, cls) if cls is KafkaError else cls)

    def __init__(self, code: int, message: str | None = None, *, about: str = "") -> None:
        self.code = code
        self.name = error_name(code)
        self.message = message
        self.about = about
        """What the code was about, such as `group billing`."""
        text = f"{self.name}: {message}" if message else self.name
        super().__init__(f"{about}: {text}" if about else text)

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """As Kafka's clients see it."""
        return is_retriable(self.code)


class ProducerFenced(KafkaError):
    """Another producer has taken the transactional id over, or the transaction's time was over."""


class StreamsInvalidTopology(KafkaError):
    """The topology of a member of a streams group is none that can be run."""


class StreamsInvalidTopologyEpoch(KafkaError):
    """The topology is another one than the group's, and its epoch does not say so."""


class StreamsTopologyFenced(KafkaError):
    """The member's topology is older than the group's."""


_LEAVES: dict[int, type[KafkaError]] = {
    Errors.PRODUCER_FENCED: ProducerFenced,
    Errors.STREAMS_INVALID_TOPOLOGY: StreamsInvalidTopology,
    Errors.STREAMS_INVALID_TOPOLOGY_EPOCH: StreamsInvalidTopologyEpoch,
    Errors.STREAMS_TOPOLOGY_FENCED: StreamsTopologyFenced,
}
"""Codes whose class somebody wants to catch: fencing, and what KIP-1071 adds to the clients."""


def error_name(code: int) -> str:
    """Kafka's name of a code, also for one that is newer than we are."""
    try:
        return Errors(code).name
    except ValueError:
        return f"error code {code}"


def is_retriable(code: int) -> bool:
    """Whether Kafka's clients send the same request again after this code."""
    try:
        return Errors(code).retriable
    except ValueError:
        return False


def raise_for(code: int, message: str | None = None, *, about: str = "") -> None:
    """Raise `KafkaError` for any code but NONE."""
    if code != 0:
        raise KafkaError(code, message, about=about)
