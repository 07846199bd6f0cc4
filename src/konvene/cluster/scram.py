"""AlterUserScramCredentials, as Kafka's `ScramControlManager`: each user has its own result.

The password never arrives: a client sends the salted password, of which the two keys are stored.
"""

from __future__ import annotations

from typing import Final

from konvene.cluster.state import CatalogueState
from konvene.errors import Errors
from konvene.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from konvene.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from konvene.security.sasl.credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import ClusterError

__all__ = ["MECHANISM_CODES", "alter", "replay", "replay_removal"]

MECHANISM_CODES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Names of mechanisms by their codes in messages and records."""

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter(state: CatalogueState, request: AlterUserScramCredentialsRequest, context: Context) -> Outcome:
    """Delete and set the credentials of an AlterUserScramCredentials request."""
    changes: dict[str, Change] = {}
    errors: dict[str, ClusterError] = {}
    requested: tuple[Change, ...] = (*request.deletions, *request.upsertions)
    for change in requested:
        if change.name in errors:
            continue
        try:
            if changes.pop(change.name, None) is not None:
                raise ClusterError(
                    Errors.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            _check(state, change)
        except ClusterError as invalid:
            errors[change.name] = invalid
        else:
            changes[change.name] = change
    results = [
        *(AlterUserScramCredentialsResult(user=name, error_message=None) for name in changes),
        *(
            AlterUserScramCredentialsResult(user=name, error_code=e.error, error_message=e.message)
            for name, e in errors.items()
        ),
    ]
    response = AlterUserScramCredentialsResponse(results=tuple(results))
    return Outcome((Reply(context.waiter, response),), tuple(map(_record, changes.values())))


def _check(state: CatalogueState, change: Change) -> None:
    """Raise `ClusterError` with Kafka's message if the change is not possible."""
    if not change.name:
        raise ClusterError(Errors.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISM_CODES.get(change.mechanism)
    if mechanism is None:
        raise ClusterError(Errors.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, mechanism) not in state.scram:
            raise ClusterError(
                Errors.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
    elif change.iterations < MIN_ITERATIONS:
        raise ClusterError(Errors.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif change.iterations > MAX_ITERATIONS:
        raise ClusterError(Errors.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _record(change: Change) -> RemoveUserScramCredentialRecord | UserScramCredentialRecord:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    from konvene.security.sasl.scram import credential_of_salted  # A plaintext broker starts without it.

    credential = credential_of_salted(
        MECHANISM_CODES[change.mechanism], change.salted_password, change.salt, change.iterations
    )
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def replay(state: CatalogueState, record: UserScramCredentialRecord) -> None:
    """Set a credential; one of an unknown mechanism is ignored."""
    mechanism = MECHANISM_CODES.get(record.mechanism)
    if mechanism is not None:
        state.scram[record.name, mechanism] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )


def replay_removal(state: CatalogueState, record: RemoveUserScramCredentialRecord) -> None:
    """Remove a credential."""
    state.scram.pop((record.name, MECHANISM_CODES.get(record.mechanism, "")), None)
