"""Errors of SASL exchanges."""

from __future__ import annotations

__all__ = ["AuthenticationFailed", "InvalidCredentials", "RetriableFailure"]


class AuthenticationFailed(Exception):
    """The client is not authenticated; the message is sent to it (SASL_AUTHENTICATION_FAILED)."""


class InvalidCredentials(Exception):
    """The exchange of a mechanism failed; the message is for the log.

    The client only gets a general message, which does not reveal whether the user or the password is wrong.
    """


class RetriableFailure(Exception):
    """The exchange failed, but may succeed at the next try; the connection is closed without a response.

    A Kerberos ticket that is not valid yet, as its KDC's clock is ahead (Kafka's `KerberosError`)."""
