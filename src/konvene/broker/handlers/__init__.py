"""One file per API: read the request, ask whoever decides, answer.

A handler is `handle(broker, request, call)` and gives a response, something that will be one (`Later` or an
awaitable), or None where the client expects no answer. It decides nothing about groups or topics itself.
"""
