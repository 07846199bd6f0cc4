"""Request handlers, one module per API: validate the request, submit it to the service in charge, respond.

A handler is a function `handle(*services, request, context)`; the names of the leading parameters select the
services (`konvene.broker.services`). It returns a response, a `Deferred` or an awaitable of one, or None if
the client expects no response. Decisions about groups, transactions and topics belong to the coordinators and
the catalogue, never to a handler. The errors of an API are listed in its module of `konvene.messages`.
"""
