"""Faults as sentences: one a line, read into calls of `faults.Faults`. Reading asks for nothing yet.

`FORMS` is the grammar. In a form, words in capitals are to be filled in:

    WHICH   next | next NUMBER | NUMBERth | every         (behind "the", which may be left out)
    API     one of Kafka's, however it is written: heartbeat, JoinGroup, offset commit
    WHOSE   any of: of member NUMBER-OR-NAME, of instance NAME, of client NAME, of group NAME, of topic NAME,
            in generation NUMBER, with probability NUMBER, with seed NUMBER
    ERROR   Kafka's name or number of an error
    TIME    such as 200 ms, 2 s, 1 min

A line that begins with # is a remark. A sentence that is no form is refused with what was expected where it
stops to make sense; if one sentence of a script is refused, none is done.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.errors import Errors
from konvene.messages import BY_NAME

if TYPE_CHECKING:
    from konvene.testing.fault import Fault
    from konvene.testing.faults import Faults

Do = Callable[["Faults"], "Fault"]

_APIS = {name.lower(): name for name in BY_NAME}
_WAYS = {"request": "request", "requests": "request", "response": "response", "responses": "response"}
_AFTER = {
    ("connection", "is", "cut"): "cut",
    ("connection", "stays"): "stays",
    ("connection", "is", "silent"): "silent",
}  # fmt: skip
_UNITS_MS = {"ms": 1, "s": 1000, "second": 1000, "seconds": 1000, "min": 60_000, "minutes": 60_000}


class FaultScriptError(ValueError):
    """A malformed sentence: where it stops making sense, and what was expected there."""


class _Words:
    """A sentence, read word by word."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        self._words: list[str] = re.findall(r'"[^"]*"|[^\s,;]+', sentence.strip().rstrip("."))
        self._at = 0

    def __repr__(self) -> str:
        return f"<words {self._words[self._at :]}>"

    @property
    def over(self) -> bool:
        return self._at >= len(self._words)

    @property
    def now(self) -> str:
        return "" if self.over else self._words[self._at].lower()

    def starts_with(self, *words: str) -> bool:
        """Whether these come next; if so they are passed."""
        end = self._at + len(words)
        if [word.lower() for word in self._words[self._at : end]] != list(words):
            return False
        self._at = end
        return True

    def take(self, what: str) -> str:
        """The next word as it was written, without quotes."""
        if self.over:
            raise self.expected(what)
        self._at += 1
        return self._words[self._at - 1].strip('"')

    def must(self, *words: str) -> None:
        if not self.starts_with(*words):
            raise self.expected(repr(" ".join(words)))

    def number(self, what: str) -> int:
        if not self.now.isdigit():
            raise self.expected(what)
        return int(self.take(what))

    def chance(self, what: str) -> float:
        try:
            found = float(self.now)
        except ValueError:
            raise self.expected(what) from None
        self._at += 1
        return found

    def expected(self, what: str) -> FaultScriptError:
        found = repr(self._words[self._at]) if not self.over else "the end"
        return FaultScriptError(f"{self.sentence.strip()!r}: expected {what}, found {found}")


def read_script(script: str) -> list[Do]:
    """What the sentences ask for, in order. Raises `FaultScriptError`, with the number of the line."""
    found: list[Do] = []
    for number, line in enumerate(script.splitlines(), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            found.append(read_sentence(line))
        except FaultScriptError as error:
            raise FaultScriptError(f"line {number}: {error}") from None
    return found


def read_sentence(sentence: str) -> Do:
    """What one sentence asks for."""
    words = _Words(sentence)
    for beginning, read in _READERS:
        if words.starts_with(*beginning):
            do = read(words)
            if not words.over:
                raise words.expected("the end, or more of whose message it is")
            return do
    raise words.expected("one of " + ", ".join(sorted({" ".join(begin) for begin, _ in _READERS})))


# --- parts of sentences ---


def _api(words: _Words) -> str:
    """One word, or two: join group, JoinGroup, join_group."""
    one = words.take("an API, such as heartbeat")
    name = _APIS.get(one.replace("_", "").lower())
    if name is not None:
        return name
    two = _APIS.get((one + words.now).lower())
    if two is not None:
        words.take("an API")
        return two
    near = difflib.get_close_matches(one.lower(), _APIS, n=1)
    hint = f" ({_APIS[near[0]]}?)" if near else ""
    raise FaultScriptError(f"{words.sentence.strip()!r}: {one!r} is not one of Kafka's APIs{hint}")


def _which(words: _Words) -> dict[str, Any]:
    words.starts_with("the")
    if words.starts_with("every"):
        return {"times": None}
    if words.starts_with("next"):
        return {"times": words.number("a number")} if words.now.isdigit() else {}
    found = re.fullmatch(r"(\d+)(?:st|nd|rd|th)", words.now)
    if found is None:
        raise words.expected("'next', 'every' or a number such as '2nd'")
    words.take("a number")
    return {"nth": int(found[1])}


def _way(words: _Words) -> str:
    if words.now not in _WAYS:
        raise words.expected("'request' or 'response'")
    return _WAYS[words.take("a way").lower()]


def _whose(words: _Words) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while True:
        if words.starts_with("of", "member"):
            found["member"] = _member(words)
        elif words.starts_with("in", "generation") or words.starts_with("in", "epoch"):
            found["generation"] = words.number("a generation")
        elif words.starts_with("with", "probability"):
            found["probability"] = words.chance("a number from 0 to 1")
        elif words.starts_with("with", "seed") or words.starts_with("and", "seed"):
            found["seed"] = words.number("a number")
        else:
            for kind in ("instance", "client", "group", "topic"):
                if words.starts_with("of", kind):
                    found[kind] = words.take(f"the name of the {kind}")
                    break
            else:
                return found


def _member(words: _Words) -> int | str:
    name = words.take("a member's number or name")
    return int(name) if name.isdigit() else name


def _who(words: _Words) -> int | str:
    """A member, however it is called."""
    for kind in ("member", "instance", "client"):
        if words.starts_with(kind):
            return _member(words) if kind == "member" else words.take(f"the name of the {kind}")
    raise words.expected("'member', 'instance' or 'client'")


def _time_ms(words: _Words) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", words.now)
    if found is None:
        raise words.expected("a time such as '200 ms'")
    words.take("a time")
    unit = found[2] or words.take("'ms', 's' or 'min'").lower()
    if unit not in _UNITS_MS:
        raise FaultScriptError(f"{words.sentence.strip()!r}: {unit!r} is no unit of time; ms, s and min are")
    return int(float(found[1]) * _UNITS_MS[unit])


def _error(words: _Words) -> str | int:
    name = words.take("an error, such as REBALANCE_IN_PROGRESS")
    if name.lstrip("-").isdigit():
        return int(name)
    if name.upper() not in Errors.__members__:
        near = difflib.get_close_matches(name.upper(), Errors.__members__, n=1)
        hint = f" ({near[0]}?)" if near else ""
        raise FaultScriptError(f"{words.sentence.strip()!r}: {name!r} is not one of Kafka's errors{hint}")
    return name.upper()


def _of_group(words: _Words) -> str | None:
    return words.take("the name of a group") if words.starts_with("of", "group") else None


# --- sentences ---


def _lose(words: _Words) -> Do:
    which, api, way = _which(words), _api(words), _way(words)
    match = which | _whose(words)
    after: Any = "cut"
    words.starts_with("and")
    words.starts_with("the")
    if words.now == "connection":
        after = next((value for said, value in _AFTER.items() if words.starts_with(*said)), None)
        if after is None:
            raise words.expected("'connection stays', 'connection is cut' or 'connection is silent'")
    if way == "request":
        return lambda faults: faults.lose_request(api, connection=after, **match)
    return lambda faults: faults.lose_response(api, connection=after, **match)


def _delay(words: _Words) -> Do:
    which, api = _which(words), _api(words)
    way: Any = _way(words)
    match = which | _whose(words)
    words.must("by")
    ms = _time_ms(words)
    return lambda faults: faults.delay(api, ms=ms, way=way, **match)


def _hold(words: _Words) -> Do:
    which, api = _which(words), _api(words)
    way: Any = _way(words)
    match = which | _whose(words)
    return lambda faults: faults.hold(api, way=way, **match)


def _duplicate(words: _Words) -> Do:
    which, api = _which(words), _api(words)
    words.must("request")
    match = which | _whose(words)
    return lambda faults: faults.duplicate(api, **match)


def _cut(words: _Words) -> Do:
    at_byte = words.number("a number of bytes")
    words.must("bytes", "of")
    which, api = _which(words), _api(words)
    way: Any = _way(words)
    match = which | _whose(words)
    return lambda faults: faults.cut(api, at_byte=at_byte, way=way, **match)


def _answer(words: _Words) -> Do:
    which, api = _which(words), _api(words)
    words.must("request")
    match = which | _whose(words)
    words.must("with")
    error = _error(words)
    return lambda faults: faults.answer(api, error, **match)


def _fence(words: _Words) -> Do:
    from konvene.testing.faults import FENCING

    who, group = _who(words), None
    generation, error, really = None, "FENCED_INSTANCE_ID", False
    while not words.over:
        if words.starts_with("at", "generation") or words.starts_with("at", "epoch"):
            generation = words.number("a generation")
        elif words.starts_with("of", "group"):
            group = words.take("the name of a group")
        elif words.starts_with("with"):
            error = str(_error(words))
            if error not in FENCING:
                raise FaultScriptError(f"{words.sentence.strip()!r}: {error} does not fence a member")
        elif words.starts_with("by", "joining", "in", "its", "place"):
            really = True
        else:
            raise words.expected("'at generation', 'of group', 'with' or 'by joining in its place'")
    return lambda faults: faults.fence(who, generation=generation, group=group, error=error, really=really)


def _expire(words: _Words) -> Do:
    words.starts_with("the")
    words.must("session", "of")
    who, group = _who(words), _of_group(words)
    words.starts_with("now")
    return lambda faults: faults.expire_session(who, group=group)


def _coordinator(words: _Words) -> Do:
    words.must("of", "group")
    group = words.take("the name of a group")
    if words.starts_with("restarts", "between", "append", "and", "reply"):
        api = _of_the_next(words)
        return lambda faults: faults.restart_after_append(group, api)
    if words.starts_with("loads", "for"):
        ms = _time_ms(words)
        return lambda faults: faults.load_coordinator(group, ms=ms)
    raise words.expected("'restarts between append and reply' or 'loads for'")


def _of_the_next(words: _Words) -> str | None:
    if not words.starts_with("of", "the", "next"):
        return None
    from konvene.testing.journal_faults import APPENDS

    api = _api(words)
    if api not in APPENDS:
        raise FaultScriptError(f"{words.sentence.strip()!r}: {api} writes nothing; {', '.join(APPENDS)} do")
    return api


def _fail(words: _Words) -> Do:
    words.starts_with("the")
    words.must("next", "append", "of", "group")
    group = words.take("the name of a group")
    api = _of_the_next(words)
    return lambda faults: faults.fail_append(group, api)


def _partition(words: _Words) -> Do:
    client = words.take("a client id")
    if words.starts_with("to", "the", "broker"):
        return lambda faults: faults.partition(client, way="to the broker")[0]
    if words.starts_with("from", "the", "broker"):
        return lambda faults: faults.partition(client, way="from the broker")[0]
    raise words.expected("'to the broker' or 'from the broker'")


_READERS: tuple[tuple[tuple[str, ...], Callable[[_Words], Do]], ...] = (
    (("lose", "everything", "of", "client"), _partition),
    (("lose",), _lose),
    (("delay",), _delay),
    (("hold",), _hold),
    (("duplicate",), _duplicate),
    (("cut", "the", "connection", "after"), _cut),
    (("answer",), _answer),
    (("fence",), _fence),
    (("expire",), _expire),
    (("the", "coordinator"), _coordinator),
    (("coordinator",), _coordinator),
    (("fail",), _fail),
    (("kill", "and", "restart", "the", "broker"), lambda _: lambda faults: faults.restart_broker()),
    (("restart", "the", "broker"), lambda _: lambda faults: faults.restart_broker(kill=False)),
)

FORMS = (
    "lose the WHICH API request|response WHOSE[, the connection is cut|stays|is silent]",
    "lose everything of client NAME to|from the broker",
    "delay the WHICH API request|response WHOSE by TIME",
    "hold the WHICH API request|response WHOSE",
    "duplicate the WHICH API request WHOSE",
    "cut the connection after NUMBER bytes of the WHICH API request|response WHOSE",
    "answer the WHICH API request WHOSE with ERROR",
    "fence member NUMBER-OR-NAME|instance NAME|client NAME [at generation NUMBER] [of group NAME]"
    " [with ERROR] [by joining in its place]",
    "expire the session of member NUMBER-OR-NAME|instance NAME|client NAME [of group NAME] [now]",
    "the coordinator of group NAME restarts between append and reply [of the next API]",
    "the coordinator of group NAME loads for TIME",
    "fail the next append of group NAME [of the next API]",
    "restart the broker",
    "kill and restart the broker",
)
"""The sentences there are."""
