r"""The expression of ListTransactions: which transactional ids it matches, whole.

Kafka takes Java's expressions, and so its broker may think for years about `(a+)+b`. Here an expression
becomes a graph of places, and a name is read once, with the set of places that it may be at: no expression
takes longer than its length times the name's. What is understood means what it means in Java:

- a character; `\` before one that is no letter or digit; `\t` `\n` `\r` `\f`; `.`, which is no end of a line;
- `\d` `\w` `\s` and `\D` `\W` `\S`, of ASCII, and classes such as `[a-z_]` and `[^.]`;
- groups `( )` and `(?: )`, alternatives, `*` `+` `?` `{2}` `{2,}` `{2,5}`, also with a `?` behind;
- `^` at the beginning and `$` at the end, where they say nothing.

All else is refused, as is what Java refuses: look-around, back-references, `a*+`, flags, names, `\p`, classes
within classes. So is an expression of more than `MOST_PLACES` places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NoReturn

MOST_PLACES: Final = 2000
MOST_REMEMBERED: Final = 10_000
"""Of what follows from a set of places and a character."""

_DEEPEST: Final = 100
_LINE_ENDS: Final = frozenset("\n\r\u0085\u2028\u2029")
_DIGITS: Final = frozenset("0123456789")
_WORD: Final = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

Takes = Callable[[str], bool]
"""Whether a character leads from a place to the next one."""

Fragment = tuple[int, int]
"""A part of the graph: where it begins and where it ends."""


class InvalidPattern(Exception):
    """No expression, or none that is understood here."""


class Pattern:
    """An expression, ready to be asked."""

    def __init__(self, text: str) -> None:
        """Raises `InvalidPattern`."""
        reader = _Reader(text)
        first, self._last = reader.whole()
        self._steps, self._free = reader.steps, reader.free
        self._first = self._from((first,))
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression is the whole name."""
        at = self._first
        for char in name:
            after = self._next.get((at, char))
            if after is None:
                after = self._after(at, char)
            at = after
            if not at:
                return False
        return self._last in at

    def _after(self, at: frozenset[int], char: str) -> frozenset[int]:
        found = self._from(step[1] for place in at if (step := self._steps.get(place)) and step[0](char))
        if len(self._next) >= MOST_REMEMBERED:
            self._next.clear()
        self._next[at, char] = found
        return found

    def _from(self, places: Iterable[int]) -> frozenset[int]:
        """All places that may be reached without a character."""
        found: set[int] = set()
        todo = list(places)
        while todo:
            place = todo.pop()
            if place not in found:
                found.add(place)
                todo += self._free[place]
        return frozenset(found)


class _Reader:
    """Reads an expression from left to right and makes its graph."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.steps: dict[int, tuple[Takes, int]] = {}
        self.free: list[list[int]] = []
        self._depth = 0

    def whole(self) -> Fragment:
        if self.text.startswith("^"):
            self.at = 1
        made = self._alternatives()
        if self.at < len(self.text):
            self._refuse("Unmatched closing ')'")
        return made

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidPattern(f"{why} near index {self.at}")

    def _look(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        char = self._look()
        if not char:
            self._refuse("Unexpected end")
        self.at += 1
        return char

    def _place(self) -> int:
        if len(self.free) >= MOST_PLACES:
            self._refuse("The expression is too large")
        self.free.append([])
        return len(self.free) - 1

    # --- parts ---

    def _alternatives(self) -> Fragment:
        first, last = self._place(), self._place()
        while True:
            begin, end = self._sequence()
            self.free[first].append(begin)
            self.free[end].append(last)
            if self._look() != "|":
                return first, last
            self.at += 1

    def _sequence(self) -> Fragment:
        first = last = self._place()
        while (char := self._look()) and char not in "|)":
            if char == "$" and self.at == len(self.text) - 1 and not self._depth:
                self.at += 1
                break
            begin, end = self._repeated()
            self.free[last].append(begin)
            last = end
        return first, last

    def _repeated(self) -> Fragment:
        start = self.at
        made = self._atom()
        stop = self.at
        least, most = self._counts()
        if (least, most) == (1, 1):
            return made
        if self._look() == "?":
            self.at += 1
        if self._look() in ("*", "+", "?", "{"):
            self._refuse(f"'{self._look()}' after a repetition is not understood")
        return self._times(start, stop, made, least, most)

    def _times(self, start: int, stop: int, made: Fragment, least: int, most: int | None) -> Fragment:
        """The part between two indexes so many times; it was read once."""
        first = last = self._place()
        rest = self.at
        unused: Fragment | None = made
        for count in range(max(least, 1) if most is None else most):
            if unused is None:
                self.at = start
                unused = self._atom()
                assert self.at == stop
            begin, end = unused
            unused = None
            after = self._place()
            self.free[last].append(begin)
            self.free[end].append(after)
            if count >= least:
                self.free[last].append(after)
            if most is None and count >= least - 1:
                self.free[end].append(begin)
            last = after
        self.at = rest
        return first, last

    def _counts(self) -> tuple[int, int | None]:
        char = self._look()
        if char in ("*", "+", "?"):
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return 1, 1
        self.at += 1
        least = self._number()
        most: int | None = least
        if self._look() == ",":
            self.at += 1
            most = None if self._look() == "}" else self._number()
        if self._take() != "}":
            self._refuse("Unclosed counted closure")
        if most is not None and most < least:
            self._refuse("Illegal repetition range")
        return least, most

    def _number(self) -> int:
        digits = ""
        while self._look() and self._look() in _DIGITS:
            digits += self._take()
        if not digits or len(digits) > 4:
            self._refuse("Illegal repetition")
        return int(digits)

    # --- atoms ---

    def _atom(self) -> Fragment:
        char = self._take()
        if char == "(":
            return self._group()
        if char in "*+?{":
            self._refuse(f"Dangling meta character '{char}'")
        if char in "^$":
            self._refuse(f"'{char}' is not understood here")
        if char == ".":
            return self._step(lambda c: c not in _LINE_ENDS)
        if char == "[":
            return self._step(self._class())
        if char == "\\":
            return self._step(self._escaped())
        return self._step(char.__eq__)

    def _step(self, takes: Takes) -> Fragment:
        begin, end = self._place(), self._place()
        self.steps[begin] = takes, end
        return begin, end

    def _group(self) -> Fragment:
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._look() == "?":
            self._refuse("This kind of group is not understood")
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse("The expression is too deep")
        made = self._alternatives()
        self._depth -= 1
        if self._look() != ")":
            self._refuse("Unclosed group")
        self.at += 1
        return made

    def _escaped(self) -> Takes:
        char = self._take()
        among = _CLASSES.get(char.lower())
        if among is not None:
            return among.__contains__ if char.islower() else lambda c: c not in among
        return self._letter(char).__eq__

    def _letter(self, char: str) -> str:
        """The character that is meant by one behind a backslash."""
        if char in _LETTERS:
            return _LETTERS[char]
        if char.isascii() and char.isalnum():
            self._refuse(f"'\\{char}' is not understood")
        return char

    def _class(self) -> Takes:
        negated = self._look() == "^"
        self.at += negated
        parts: list[Takes] = []
        while self._look() != "]" or not parts:
            parts.append(self._of_a_class())
        self.at += 1
        return lambda c: any(takes(c) for takes in parts) is not negated

    def _of_a_class(self) -> Takes:
        char = self._take()
        if char in "[]" or (char == "&" and self._look() == "&"):
            self._refuse(f"'{char}' within a class is not understood")
        if char == "\\":
            if self._look().lower() in _CLASSES:
                return self._escaped()
            char = self._letter(self._take())
        if self._look() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return char.__eq__
        self.at += 1
        last = self._take()
        if last == "[":
            self._refuse("'[' within a class is not understood")
        if last == "\\":
            last = self._letter(self._take())
        if last < char:
            self._refuse("Illegal character range")
        return lambda c: char <= c <= last
