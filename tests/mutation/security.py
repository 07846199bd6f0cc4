"""Planted bugs of a broker with an authorizer: clients get, or keep, what they have no right to."""

from __future__ import annotations

from tests.mutation.mutant import BROKER, Mutant

NET = f"{BROKER}net/"
HANDLERS = f"{BROKER}handlers/"

SECURITY = (
    Mutant(
        "cache-is-keyed-by-bytes-alone",
        f"{NET}connection.py",
        ("SE1",),
        "Another user that replays a member's heartbeat is answered from the cache, and renews its session.",
        '            self._identity = f"{session.principal}\\0{self._host}\\0".encode()\n',
        '            self._identity = b""\n',
        level=8,
    ),
    Mutant(
        "cache-outlives-a-change-of-acls",
        f"{BROKER}broker.py",
        ("SE1",),
        "Heartbeats whose permission was revoked are answered from the cache.",
        "        self.response_cache.invalidate()\n        self.heartbeat_purgatory",
        "        if effect.verb != ACLS_CHANGED:\n"
        "            self.response_cache.invalidate()\n        self.heartbeat_purgatory",
        level=8,
    ),
    Mutant(
        "held-heartbeat-is-answered-after-revocation",
        f"{NET}response_cache.py",
        ("SE1",),
        "A held heartbeat is answered with what was cached, though its permission was revoked meanwhile.",
        "            cached.is_invalid = True\n",
        "            cached.is_invalid = False\n",
        level=8,
    ),
    Mutant(
        "held-heartbeat-outlives-its-session",
        f"{NET}sasl_connection.py",
        ("SE3",),
        "A heartbeat is held, and renews its member's session, beyond the end of the SASL session.",
        "            held_ms = min(held_ms, int((self._expires_at_s - self._network.loop.time()) * 1000))\n",
        "            held_ms = min(held_ms, 60_000)\n",
        level=8,
    ),
    Mutant(
        "expired-session-is-served",
        f"{NET}sasl_connection.py",
        ("SE3",),
        "A client that does not authenticate again is served for ten seconds after its session.",
        "            elif now_s > self._expires_at_s:\n",
        "            elif now_s > self._expires_at_s + 10:\n",
        level=8,
    ),
    Mutant(
        "expression-is-resolved-as-the-broker",
        f"{BROKER}groups/background_work.py",
        ("SE4",),
        "A regular expression matches topics that the member may not describe.",
        "            work.principal,\n",
        '            type(work.principal)("User", "ANONYMOUS"),\n',
        level=8,
    ),
    Mutant(
        "internal-topic-is-created-as-the-broker",
        f"{BROKER}groups/internal_topics.py",
        ("SE4",),
        "A streams application gets internal topics that its user may not create.",
        "        session = ANONYMOUS_SESSION._replace(principal=missing.principal)\n",
        "        session = ANONYMOUS_SESSION\n",
        level=8,
    ),
    Mutant(
        "fetch-session-is-not-checked",
        f"{HANDLERS}fetch.py",
        ("SE1",),
        "A fetch session goes on after the permission to read its topics was revoked.",
        "        if self.authorization.is_enabled:\n            self._check",
        "        if self.authorization.is_enabled and self.fetch.session is None:\n            self._check",
        level=8,
    ),
    Mutant(
        "waiting-fetch-is-not-checked-again",
        f"{HANDLERS}fetch.py",
        ("SE1",),
        "A fetch that waits returns records that were written after its permission was revoked.",
        "        if self.checked == (self.authorization.epoch, names):\n",
        "        if self.checked[0] >= 0:\n",
        level=8,
    ),
    Mutant(
        "waiting-share-fetch-is-not-checked-again",
        f"{HANDLERS}share_fetch.py",
        ("SE1",),
        "A share fetch that waits acquires records after its permission was revoked.",
        "        if self.acls == authorization.epoch:\n",
        "        if self.acls >= 0:\n",
        level=8,
    ),
    Mutant(
        "denied-heartbeat-renews-the-session",
        f"{HANDLERS}heartbeat.py",
        ("SE5",),
        "A member whose permission was revoked stays in its group as long as it sends heartbeats.",
        "        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)\n",
        "        submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)\n"
        "        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)\n",
        level=8,
    ),
    Mutant(
        "reading-does-not-imply-describing",
        "security/authorizer.py",
        ("SE2",),
        "A member that may read its topics is denied, because it has no ACL to describe them.",
        "_O.DESCRIBE: frozenset((_O.DESCRIBE, _O.READ, _O.WRITE,",
        "_O.DESCRIBE: frozenset((_O.DESCRIBE, _O.WRITE,",
        level=8,
    ),
    Mutant(
        "deleted-denial-remains",
        "security/authorizer.py",
        ("SE2",),
        "An ACL that denies an operation applies after its deletion, until the broker restarts.",
        "            rules = tuple(rule for rule in by_name.get(acl.resource_name, ()) if rule.acl != acl)\n",
        "            rules = tuple(\n"
        "                rule\n"
        "                for rule in by_name.get(acl.resource_name, ())\n"
        "                if rule.acl != acl or not rule.allows\n"
        "            )\n",
        level=8,
    ),
)
