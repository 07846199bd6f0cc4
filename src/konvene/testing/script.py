"""Parser of fault scripts: sentences, one per line, that become calls of `faults.Faults`.

Parsing creates no fault: each sentence becomes a function that does. `FORMS` is the grammar, with these
placeholders:

    WHICH   next | next NUMBER | NUMBERth | every         (after an optional "the")
    API     a Kafka API in any spelling: heartbeat, JoinGroup, offset commit
    WHOSE   any of: of member NUMBER-OR-NAME, of instance NAME, of client NAME, of group NAME, of topic NAME,
            in generation NUMBER, with probability NUMBER, with seed NUMBER
    ERROR   Kafka's name or number of an error
    RESOURCE  NAME of a topic | topic NAME | group NAME | transactional-id NAME | cluster; NAME* is a prefix
    TIME    such as 200 ms, 2 s, 1 min

A line that begins with # is a comment. A sentence that matches no form raises `FaultScriptError`, with the
position of the error and what was expected there; then no fault of the script is created.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from konvene.errors import Errors
from konvene.messages import BY_NAME

if TYPE_CHECKING:
    from konvene.testing.fault import Fault
    from konvene.testing.faults import Direction, Faults
    from konvene.testing.rules import After, Matching

MakeFault = Callable[["Faults"], "Fault"]
"""A function that creates the fault of a parsed sentence."""

_APIS = {name.lower(): name for name in BY_NAME}
_DIRECTIONS: dict[str, Direction] = {
    "request": "request", "requests": "request", "response": "response", "responses": "response",
}  # fmt: skip
_NAMED: Final = ("instance", "client", "group", "topic")
_AFTER: dict[tuple[str, ...], After] = {
    ("connection", "is", "cut"): "cut",
    ("connection", "stays"): "stays",
    ("connection", "is", "silent"): "silent",
}  # fmt: skip
_UNITS_MS = {"ms": 1, "s": 1000, "second": 1000, "seconds": 1000, "min": 60_000, "minutes": 60_000}


class FaultScriptError(ValueError):
    """Raised for a malformed sentence. The message has the position of the error and what was expected
    there."""


class _Sentence:
    """The tokens of a sentence, which parsers consume from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._tokens: list[str] = re.findall(r'"[^"]*"|[^\s,;]+', self.text.rstrip("."))
        self._position = 0

    def __repr__(self) -> str:
        return f"<sentence {self._tokens[self._position :]}>"

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._tokens)

    @property
    def next_token(self) -> str:
        return "" if self.at_end else self._tokens[self._position].lower()

    def accept(self, *tokens: str) -> bool:
        """Consume these tokens and return True if they come next; upper and lower case are equal."""
        end = self._position + len(tokens)
        if [token.lower() for token in self._tokens[self._position : end]] != list(tokens):
            return False
        self._position = end
        return True

    def take(self, expected: str) -> str:
        """Consume the next token and return it without quotes.

        Raises `FaultScriptError` at the end of the sentence: `expected` is what belongs there."""
        if self.at_end:
            raise self.error(expected)
        self._position += 1
        return self._tokens[self._position - 1].strip('"')

    def expect(self, *tokens: str) -> None:
        """Consume these tokens. Raises `FaultScriptError` if others come next."""
        if not self.accept(*tokens):
            raise self.error(repr(" ".join(tokens)))

    def number(self, expected: str) -> int:
        if not self.next_token.isdigit():
            raise self.error(expected)
        return int(self.take(expected))

    def probability(self, expected: str) -> float:
        try:
            value = float(self.next_token)
        except ValueError:
            raise self.error(expected) from None
        self._position += 1
        return value

    def error(self, expected: str) -> FaultScriptError:
        """Return, to be raised, an error whose message names the next token and what was `expected` there."""
        found = repr(self._tokens[self._position]) if not self.at_end else "the end"
        return FaultScriptError(f"{self.text!r}: expected {expected}, found {found}")


def read_script(script: str) -> list[MakeFault]:
    """Parse a script into functions that create its faults, in order.

    Raises `FaultScriptError`, with the line number."""
    actions: list[MakeFault] = []
    for number, line in enumerate(script.splitlines(), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            actions.append(read_sentence(line))
        except FaultScriptError as error:
            raise FaultScriptError(f"line {number}: {error}") from None
    return actions


def read_sentence(text: str) -> MakeFault:
    """Parse one sentence into a function that creates its fault."""
    sentence = _Sentence(text)
    for prefix, read in _PARSERS:
        if sentence.accept(*prefix):
            make_fault = read(sentence)
            if not sentence.at_end:
                raise sentence.error("the end, or a qualifier such as 'of group g'")
            return make_fault
    raise sentence.error("one of " + ", ".join(sorted({" ".join(prefix) for prefix, _ in _PARSERS})))


# --- parts of sentences ---


def _api(sentence: _Sentence) -> str:
    """Parse an API name of one or two tokens: join group, JoinGroup, join_group."""
    one = sentence.take("an API, such as heartbeat")
    name = _APIS.get(one.replace("_", "").lower())
    if name is not None:
        return name
    two = _APIS.get((one + sentence.next_token).lower())
    if two is not None:
        sentence.take("an API")
        return two
    near = difflib.get_close_matches(one.lower(), _APIS, n=1)
    hint = f" ({_APIS[near[0]]}?)" if near else ""
    raise FaultScriptError(f"{sentence.text!r}: {one!r} is not a Kafka API{hint}")


def _which(sentence: _Sentence) -> Matching:
    sentence.accept("the")
    if sentence.accept("every"):
        return {"times": None}
    if sentence.accept("next"):
        return {"times": sentence.number("a number")} if sentence.next_token.isdigit() else {}
    found = re.fullmatch(r"(\d+)(?:st|nd|rd|th)", sentence.next_token)
    if found is None:
        raise sentence.error("'next', 'every' or a number such as '2nd'")
    sentence.take("a number")
    return {"nth": int(found[1])}


def _direction(sentence: _Sentence) -> Direction:
    if sentence.next_token not in _DIRECTIONS:
        raise sentence.error("'request' or 'response'")
    return _DIRECTIONS[sentence.take("a direction").lower()]


def _qualifiers(sentence: _Sentence) -> Matching:
    found: Matching = {}
    while True:
        if sentence.accept("of", "member"):
            found["member"] = _member(sentence)
        elif sentence.accept("in", "generation") or sentence.accept("in", "epoch"):
            found["generation"] = sentence.number("a generation")
        elif sentence.accept("with", "probability"):
            found["probability"] = sentence.probability("a number from 0 to 1")
        elif sentence.accept("with", "seed") or sentence.accept("and", "seed"):
            found["seed"] = sentence.number("a number")
        else:
            for kind in _NAMED:
                if sentence.accept("of", kind):
                    found[kind] = sentence.take(f"the name of the {kind}")
                    break
            else:
                return found


def _member(sentence: _Sentence) -> int | str:
    name = sentence.take("a member's number or name")
    return int(name) if name.isdigit() else name


def _member_reference(sentence: _Sentence) -> int | str:
    """Parse `member NUMBER-OR-NAME`, `instance NAME` or `client NAME`."""
    for kind in ("member", "instance", "client"):
        if sentence.accept(kind):
            return _member(sentence) if kind == "member" else sentence.take(f"the name of the {kind}")
    raise sentence.error("'member', 'instance' or 'client'")


def _time_ms(sentence: _Sentence) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", sentence.next_token)
    if found is None:
        raise sentence.error("a time such as '200 ms'")
    sentence.take("a time")
    unit = found[2] or sentence.take("'ms', 's' or 'min'").lower()
    if unit not in _UNITS_MS:
        raise FaultScriptError(f"{sentence.text!r}: {unit!r} is not a unit of time; use ms, s or min")
    return int(float(found[1]) * _UNITS_MS[unit])


def _error(sentence: _Sentence) -> str | int:
    name = sentence.take("an error, such as REBALANCE_IN_PROGRESS")
    if name.lstrip("-").isdigit():
        return int(name)
    if name.upper() not in Errors.__members__:
        near = difflib.get_close_matches(name.upper(), Errors.__members__, n=1)
        hint = f" ({near[0]}?)" if near else ""
        raise FaultScriptError(f"{sentence.text!r}: {name!r} is not a Kafka error{hint}")
    return name.upper()


def _of_group(sentence: _Sentence) -> str | None:
    return sentence.take("the name of a group") if sentence.accept("of", "group") else None


# --- sentences ---


def _lose(sentence: _Sentence) -> MakeFault:
    which, api, direction = _which(sentence), _api(sentence), _direction(sentence)
    match = which | _qualifiers(sentence)
    after = _after(sentence)
    if direction == "request":
        return lambda faults: faults.lose_request(api, connection=after, **match)
    return lambda faults: faults.lose_response(api, connection=after, **match)


def _after(sentence: _Sentence) -> After:
    sentence.accept("and")
    sentence.accept("the")
    for tokens, after in _AFTER.items():
        if sentence.accept(*tokens):
            return after
    if sentence.next_token == "connection":
        raise sentence.error("'connection stays', 'connection is cut' or 'connection is silent'")
    return "cut"


def _delay(sentence: _Sentence) -> MakeFault:
    which, api = _which(sentence), _api(sentence)
    direction = _direction(sentence)
    match = which | _qualifiers(sentence)
    sentence.expect("by")
    ms = _time_ms(sentence)
    return lambda faults: faults.delay(api, ms=ms, direction=direction, **match)


def _hold(sentence: _Sentence) -> MakeFault:
    which, api = _which(sentence), _api(sentence)
    direction = _direction(sentence)
    match = which | _qualifiers(sentence)
    return lambda faults: faults.hold(api, direction=direction, **match)


def _duplicate(sentence: _Sentence) -> MakeFault:
    which, api = _which(sentence), _api(sentence)
    sentence.expect("request")
    match = which | _qualifiers(sentence)
    return lambda faults: faults.duplicate(api, **match)


def _cut(sentence: _Sentence) -> MakeFault:
    at_byte = sentence.number("a number of bytes")
    sentence.expect("bytes", "of")
    which, api = _which(sentence), _api(sentence)
    direction = _direction(sentence)
    match = which | _qualifiers(sentence)
    return lambda faults: faults.cut(api, at_byte=at_byte, direction=direction, **match)


def _answer(sentence: _Sentence) -> MakeFault:
    which, api = _which(sentence), _api(sentence)
    sentence.expect("request")
    match = which | _qualifiers(sentence)
    sentence.expect("with")
    error = _error(sentence)
    return lambda faults: faults.answer(api, error, **match)


def _fence(sentence: _Sentence) -> MakeFault:
    from konvene.testing.faults import FENCING

    member, group = _member_reference(sentence), None
    generation, error, takeover = None, "FENCED_INSTANCE_ID", False
    while not sentence.at_end:
        if sentence.accept("at", "generation") or sentence.accept("at", "epoch"):
            generation = sentence.number("a generation")
        elif sentence.accept("of", "group"):
            group = sentence.take("the name of a group")
        elif sentence.accept("with"):
            error = str(_error(sentence))
            if error not in FENCING:
                raise FaultScriptError(f"{sentence.text!r}: {error} does not fence a member")
        elif sentence.accept("by", "joining", "in", "its", "place"):
            takeover = True
        else:
            raise sentence.error("'at generation', 'of group', 'with' or 'by joining in its place'")
    return lambda faults: faults.fence(
        member, generation=generation, group=group, error=error, takeover=takeover
    )


def _expire(sentence: _Sentence) -> MakeFault:
    sentence.accept("the")
    sentence.expect("session", "of")
    member, group = _member_reference(sentence), _of_group(sentence)
    sentence.accept("now")
    return lambda faults: faults.expire_session(member, group=group)


def _take(sentence: _Sentence) -> MakeFault:
    from konvene.security.resources import Operation

    operation = sentence.take("an operation, such as READ").upper()
    if operation not in Operation.__members__:
        raise FaultScriptError(f"{sentence.text!r}: {operation} is not an operation of Kafka's ACLs")
    sentence.expect("on")
    resource = _resource(sentence)
    sentence.expect("from")
    user = sentence.take("the name of a user")
    return lambda faults: faults.take_right(operation, resource, user)


def _resource(sentence: _Sentence) -> str:
    """Parse a resource of an ACL, by default a topic; return it as `type:name`."""
    if sentence.accept("cluster"):
        return "cluster"
    for kind in ("topic", "group", "transactional-id"):
        if sentence.accept(kind):
            return f"{kind}:{sentence.take(f'the name of the {kind}')}"
    return f"topic:{sentence.take('the name of a topic')}"


def _coordinator(sentence: _Sentence) -> MakeFault:
    sentence.expect("of", "group")
    group = sentence.take("the name of a group")
    if sentence.accept("restarts", "between", "append", "and", "reply"):
        api = _appending_api(sentence)
        return lambda faults: faults.restart_after_append(group, api)
    if sentence.accept("loads", "for"):
        ms = _time_ms(sentence)
        return lambda faults: faults.load_coordinator(group, ms=ms)
    raise sentence.error("'restarts between append and reply' or 'loads for'")


def _appending_api(sentence: _Sentence) -> str | None:
    if not sentence.accept("of", "the", "next"):
        return None
    from konvene.testing.journal_faults import APPENDS

    api = _api(sentence)
    if api not in APPENDS:
        raise FaultScriptError(
            f"{sentence.text!r}: {api} appends nothing to the group log; use one of {', '.join(APPENDS)}"
        )
    return api


def _fail(sentence: _Sentence) -> MakeFault:
    sentence.accept("the")
    sentence.expect("next", "append", "of", "group")
    group = sentence.take("the name of a group")
    api = _appending_api(sentence)
    return lambda faults: faults.fail_append(group, api)


def _partition(sentence: _Sentence) -> MakeFault:
    client = sentence.take("a client id")
    if sentence.accept("to", "the", "broker"):
        return lambda faults: faults.partition(client, direction="to the broker")[0]
    if sentence.accept("from", "the", "broker"):
        return lambda faults: faults.partition(client, direction="from the broker")[0]
    raise sentence.error("'to the broker' or 'from the broker'")


_PARSERS: tuple[tuple[tuple[str, ...], Callable[[_Sentence], MakeFault]], ...] = (
    (("lose", "everything", "of", "client"), _partition),
    (("lose",), _lose),
    (("delay",), _delay),
    (("hold",), _hold),
    (("duplicate",), _duplicate),
    (("cut", "the", "connection", "after"), _cut),
    (("answer",), _answer),
    (("fence",), _fence),
    (("expire",), _expire),
    (("take",), _take),
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
    "take OPERATION on RESOURCE from USER",
    "the coordinator of group NAME restarts between append and reply [of the next API]",
    "the coordinator of group NAME loads for TIME",
    "fail the next append of group NAME [of the next API]",
    "restart the broker",
    "kill and restart the broker",
)
"""The grammar: all forms of sentences."""
