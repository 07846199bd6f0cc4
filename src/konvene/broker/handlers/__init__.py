"""One module for each API: read the request, ask the service that decides, answer.

A handler is `handle(*services, request, context)`, where the services are those that its signature names
(`konvene.broker.services`). It returns a response, a `Deferred` or an awaitable of one, or None where the
client expects no response. It decides nothing about groups or topics itself.
"""
