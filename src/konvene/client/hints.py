"""What a user of a program can do about an error of the client."""

from __future__ import annotations

from konvene.client import errors as e

__all__ = ["HINTS", "hint_for"]

HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`konvene topics list` shows the existing topics.",
    "GROUP_ID_NOT_FOUND": "`konvene groups list` shows the existing groups.",
    "TOPIC_ALREADY_EXISTS": "Use --if-not-exists to ignore existing topics.",
    "NON_EMPTY_GROUP": "The group has members: stop them first.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Members subscribe to the topic: stop them first.",
    "INVALID_REPLICATION_FACTOR": "There are not enough brokers: use a smaller --replication-factor.",
    "COORDINATOR_NOT_AVAILABLE": "The offsets topic is not ready; try again in a moment.",
    "COORDINATOR_LOAD_IN_PROGRESS": "The coordinator is still loading; try again in a moment.",
    "TOPIC_AUTHORIZATION_FAILED": "The user is not authorized for the topic: see the cluster's ACLs.",
    "GROUP_AUTHORIZATION_FAILED": "The user is not authorized for the group: see the cluster's ACLs.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The user is not authorized for the id: see the cluster's ACLs.",
    "TRANSACTIONAL_ID_NOT_FOUND": "`konvene transactions list` shows the existing transactional ids.",
    "CORRUPT_MESSAGE": "A log is damaged: `konvene log verify DIR`, with the data directory, shows where.",
    "PRODUCER_FENCED": "Another producer uses the transactional id, or the transaction has timed out.",
    "CLUSTER_AUTHORIZATION_FAILED": "The user is not authorized for the cluster: see its ACLs.",
    "UNSUPPORTED_COMPRESSION_TYPE": "Choose another --compression-codec.",
    "INCONSISTENT_GROUP_PROTOCOL": "The members of the group use other assignors or another protocol.",
}
"""Hints by the name of the error code."""

SECURED = "one with TLS or SASL needs --command-config FILE"


def hint_for(error: Exception) -> str:
    """Return one sentence about what to do; empty if there is nothing to say."""
    if isinstance(error, e.CannotConnect):
        return "Is a broker running there? Choose another one with --bootstrap-server HOST:PORT."
    if isinstance(error, e.AuthenticationFailed):
        return "Check the credentials and certificates of the client settings (--command-config FILE)."
    if isinstance(error, e.RequestTimedOut):
        return "The broker is busy, or it is not a Kafka broker; --timeout MS waits longer."
    if isinstance(error, e.CorruptRecord):
        return HINTS["CORRUPT_MESSAGE"]
    if isinstance(error, e.BadResponse):
        return f"Check that --bootstrap-server is a Kafka listener; {SECURED}."
    if isinstance(error, e.ConnectionLost):
        return f"The broker closed the connection; {SECURED}."
    if isinstance(error, e.KafkaError):
        return HINTS.get(error.name, "")
    return ""
