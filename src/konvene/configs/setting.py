"""The definition of a setting: its name, type, default, bounds and a sentence of documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from konvene.configs.errors import InvalidValue

__all__ = [
    "BOOLEAN",
    "CLASS",
    "DOUBLE",
    "INT",
    "LIST",
    "LONG",
    "PASSWORD",
    "RULES",
    "SHORT",
    "STRING",
    "Dynamic",
    "Importance",
    "Kind",
    "Password",
    "Rule",
    "Setting",
    "Settings",
    "Value",
    "duration_ms",
    "java_double",
]

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
Importance: TypeAlias = Literal["HIGH", "MEDIUM", "LOW"]
Dynamic: TypeAlias = Literal["no", "cluster-wide", "per-broker", "topic resource", "group resource"]


class Settings(Protocol):
    """Protocol of objects that return the typed value of a setting by name: a `BrokerConfig` or a mapping."""

    def __getitem__(self, name: str, /) -> Any: ...


class Kind(IntEnum):
    """Kafka's types of a setting; the number is the type's code in a DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN: Final = Kind.BOOLEAN
STRING: Final = Kind.STRING
INT: Final = Kind.INT
SHORT: Final = Kind.SHORT
LONG: Final = Kind.LONG
DOUBLE: Final = Kind.DOUBLE
LIST: Final = Kind.LIST
CLASS: Final = Kind.CLASS
PASSWORD: Final = Kind.PASSWORD

# The size of integers in bits.
BITS: Final = {SHORT: 16, INT: 32, LONG: 64}


class Password(str):
    """A secret text: `str`, `repr` and `format` show `[hidden]`; `reveal` returns the text itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "[hidden]"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format("[hidden]", spec)

    def reveal(self) -> str:
        return str.__str__(self)


class Rule(NamedTuple):
    """A condition on a value's text: `holds` checks it, `words` describe valid values in error messages."""

    words: str
    holds: Callable[[str], bool]


class Setting(NamedTuple):
    """The definition of a setting.

    `default` is konvene's default; `kafka_default` is Kafka's if it differs, else None. `any_case` makes
    `one_of` case-insensitive; `may_be_empty` applies to lists; `rule` is a key of `RULES`. `synonyms` are the
    broker settings from which a setting without a value takes it, by precedence: for a broker setting those
    of coarser time units. `internal` settings are described only if they are set; `unused` ones are accepted
    so that Kafka's files work, and have no effect.
    """

    name: str
    kind: Kind
    default: Value
    sentence: str
    at_least: int | float | None = None
    at_most: int | float | None = None
    one_of: tuple[str, ...] = ()
    any_case: bool = False
    may_be_empty: bool = True
    rule: str | None = None
    importance: Importance = "MEDIUM"
    dynamic: Dynamic = "no"
    synonyms: tuple[str, ...] = ()
    kafka_default: Value = None
    note: str | None = None
    internal: bool = False
    unused: bool = False

    @property
    def sensitive(self) -> bool:
        return self.kind is PASSWORD

    def parse(self, text: str, where: str = "") -> Value:
        """Return the typed value of a text. Raises InvalidValue, with `where` the text was found."""
        value = _READERS[self.kind](self, text.strip(), where)
        why = self._refusal(value)
        if why is not None:
            raise InvalidValue(self.name, self._shown(text.strip()), why, where)
        if self.kind is LIST:
            return tuple(dict.fromkeys(value))  # type: ignore[arg-type]
        return value

    def render(self, value: Value) -> str | None:
        """Return a value as Kafka's tools print it; None if it is not set."""
        if value is None:
            return None
        if value is True or value is False:
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return java_double(value)
        return str(value)

    def bounds(self) -> str:
        """Return the bounds as a short text for the reference page; empty if there are none."""
        if self.one_of:
            return "any of " * (self.kind is LIST) + ", ".join(self.one_of)
        if self.rule is not None:
            return RULES[self.rule].words
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        if self.at_least is not None:
            return f"at least {self.at_least}"
        return "" if self.may_be_empty else "not empty"

    def _refusal(self, value: Value) -> str | None:
        """Return the error message for a value of the right type that violates its bounds, else None."""
        if isinstance(value, tuple):
            return self._list_refusal(value)
        if isinstance(value, str):
            return self._text_refusal(value)
        if self.at_least is not None and value < self.at_least:  # type: ignore[operator]
            return f"Value must be at least {self.at_least}"
        if self.at_most is not None and value > self.at_most:  # type: ignore[operator]
            return f"Value must be no more than {self.at_most}"
        if self.rule is not None and not RULES[self.rule].holds(str(value)):
            return f"Value must be {RULES[self.rule].words}"
        return None

    def _text_refusal(self, value: str) -> str | None:
        known = value.upper() if self.any_case else value
        if self.one_of and known not in self.one_of:
            case = " (case insensitive)" if self.any_case else ""
            return f"String must be one of{case}: {', '.join(self.one_of)}"
        if self.rule is not None and not RULES[self.rule].holds(value):
            return f"Value must be {RULES[self.rule].words}"
        return None

    def _list_refusal(self, value: tuple[str, ...]) -> str | None:
        if not value and not self.may_be_empty:
            return f"Value must not be empty; it may be {self.bounds() if self.one_of else 'any list'}"
        if self.rule is not None:
            holds = RULES[self.rule].holds(",".join(value))
            return None if holds else f"Value must be {RULES[self.rule].words}"
        if "" in value:
            return "Values in the list must not be empty"
        for one in value:
            if self.one_of and one not in self.one_of:
                return f"String must be one of: {', '.join(self.one_of)}"
        return None

    def _shown(self, text: str) -> str:
        return "[hidden]" if self.sensitive else text


# Parsers by type; the text is trimmed already.


def _read_boolean(setting: Setting, text: str, where: str) -> Value:
    lower = text.lower()
    if lower in ("true", "false"):
        return lower == "true"
    raise InvalidValue(setting.name, text, "Expected value to be either true or false", where)


def _read_whole(setting: Setting, text: str, where: str) -> Value:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits.isascii() and digits.isdigit() and len(digits) < 25:
        value = int(text)
        limit = 1 << (BITS[setting.kind] - 1)
        if -limit <= value < limit:
            return value
    raise InvalidValue(setting.name, text, f"Not a number of type {setting.kind.name}", where)


def _read_double(setting: Setting, text: str, where: str) -> Value:
    if re.fullmatch(DECIMAL, text):
        return float(text)
    raise InvalidValue(setting.name, text, "Not a number of type DOUBLE", where)


def _read_list(setting: Setting, text: str, where: str) -> Value:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _read_text(setting: Setting, text: str, where: str) -> Value:
    return text


def _read_password(setting: Setting, text: str, where: str) -> Value:
    return Password(text)


# Patterns are compiled on first use, since that would take most of the time to import this package.
DECIMAL: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"

_READERS: Final[dict[Kind, Callable[[Setting, str, str], Value]]] = {
    BOOLEAN: _read_boolean,
    STRING: _read_text,
    INT: _read_whole,
    SHORT: _read_whole,
    LONG: _read_whole,
    DOUBLE: _read_double,
    LIST: _read_list,
    CLASS: _read_text,
    PASSWORD: _read_password,
}


def java_double(value: float) -> str:
    """Return a double as Java prints it: 0.5, 1.0, 1.0E7, 1.0E-4."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    short = next(text for p in range(1, 18) if float(text := f"{value:.{p}e}") == value)
    mantissa, exponent = short.split("e")
    return f"{mantissa}E{int(exponent)}"


# The conditions of `RULES`. Each gets the trimmed text; that of a list is joined with commas.


def _no_duplicates(text: str) -> bool:
    parts = text.split(",") if text else []
    return "" not in parts and len(set(parts)) == len(parts)


def _throttled(text: str) -> bool:
    return text == "*" or all(re.fullmatch("([0-9]+:[0-9]+)?", part) for part in text.split(","))


def _voters(text: str) -> bool:
    return not text or all(re.fullmatch(r"[0-9]+@\S+:[0-9]+", part) for part in text.split(","))


def _endpoints(text: str) -> bool:
    return not text or all(re.fullmatch(r"\S+:[0-9]+", part) for part in text.split(","))


def _offset_reset(text: str) -> bool:
    if text in ("latest", "earliest"):
        return True
    head, _, duration = text.partition(":")
    return head == "by_duration" and duration_ms(duration) is not None


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of an ISO 8601 duration such as P1DT2H30M, parsed as by Java's `Duration`.

    Return None if the text is no duration, or a negative one.
    """
    found = re.fullmatch(DURATION, text, re.IGNORECASE)
    if found is None or not any(found.groups()) or text.upper().endswith("T"):
        return None
    days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60_000 + round(seconds * 1000)
    return int(total) if total >= 0 else None


DURATION: Final = (
    r"[+]?P(?:([+-]?[0-9]+)D)?"
    r"(?:T(?:([+-]?[0-9]+)H)?(?:([+-]?[0-9]+)M)?(?:([+-]?[0-9]+(?:[.,][0-9]{0,9})?)S)?)?"
)

RULES: Final[dict[str, Rule]] = {
    "gzip level": Rule("between 1 and 9, or -1", lambda text: text == "-1" or 1 <= int(text) <= 9),
    "not empty": Rule("a non-empty string", bool),
    "no duplicates": Rule("a list without duplicates or empty values", _no_duplicates),
    "throttled replicas": Rule("`*` or a list of partition:broker pairs", _throttled),
    "voters": Rule("a list of id@host:port entries", _voters),
    "endpoints": Rule("a list of host:port entries", _endpoints),
    "offset reset": Rule("latest, earliest or by_duration:PnDTnHnMn.nS", _offset_reset),
}
