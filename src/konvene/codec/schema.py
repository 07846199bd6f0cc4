"""Declares messages as classes.

The fields of a class define the encoding of a message, and the versions that each field is in:

    class HeartbeatRequest(Struct, key=12, versions="0-4", flexible="4+"):
        group_id: str = string("0+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

The class is also the value type: frozen, slotted, keyword-only, every field with a default, compared by
content. Arrays are tuples, so that an empty one costs nothing. `compile` derives a reader and a writer for
each version; this module only holds the declarations.

Field names are Kafka's in snake case; `wire` is Kafka's spelling if it cannot be derived.
"""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from konvene.codec.uuid import ZERO_UUID

FOREVER = 32767

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

Reader = Callable[[bytes | bytearray, int, int], tuple[object, int]]
"""A generated function: `(data, position, end)` to `(value, position after it)`."""

Writer = Callable[["Struct", Callable[[bytes], None]], None]
"""A generated function that passes the bytes of a value to a callback, piece by piece."""


class Versions(NamedTuple):
    """An inclusive range of versions; empty if `first` is above `last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == FOREVER:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse Kafka's notation of a range of versions: `3`, `3-5`, `3+` or `none`."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NEVER = Versions(1, 0)
_parsed: dict[str, Versions] = {"none": NEVER}


def _versions(text: str) -> Versions:
    found = _parsed.get(text)
    if found is None:
        found = _parsed[text] = Versions.parse(text)
    return found


class Field:
    """One declared field: its type, the versions that it is in, and how a missing value is encoded."""

    __slots__ = (
        "default", "element", "flexible", "ignorable", "kind", "name", "nullable", "tag", "tagged",
        "versions", "wire",
    )  # fmt: skip

    def __init__(
        self, kind: str, element: Any, versions: str, nullable: str, default: object, tag: int | None,
        tagged: str | None, ignorable: bool, wire: str | None, flexible: str | None,
    ) -> None:  # fmt: skip
        self.kind = kind  # a primitive's name, "array" or "struct"
        self.element = element  # the array's element (Primitive or Struct class), or the Struct class
        self.versions = _versions(versions)
        self.nullable = _versions(nullable)
        self.default = default
        self.tag = tag
        self.tagged = NEVER if tag is None else _versions(tagged or versions)
        self.ignorable = ignorable
        self.wire = wire or ""
        self.flexible = None if flexible is None else _versions(flexible)
        self.name = ""

    def named(self, name: str) -> Field:
        """Set the name of the class attribute that holds this declaration; return the declaration."""
        self.name = name
        self.wire = self.wire or "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        return self

    def __repr__(self) -> str:
        return f"Field({self.wire}: {self.kind} in {self.versions})"

    @property
    def json_name(self) -> str:
        return self.wire[:1].lower() + self.wire[1:]

    def is_tagged(self, version: int) -> bool:
        return version in self.tagged


class Primitive(Generic[T]):
    """A primitive type of the protocol. Calling it declares a field of that type: `string("0+")`.

    The call returns a `Field`. It is typed as the value that the field will have in an instance, as with
    `dataclasses.field`; so are `array` and `struct`.
    """

    __slots__ = ("name", "zero")

    def __init__(self, name: str, zero: T) -> None:
        self.name = name
        self.zero = zero

    def __call__(
        self, versions: str, *, nullable: str = "none", default: T | EllipsisType | None = ...,
        tag: int | None = None, tagged: str | None = None, ignorable: bool = False, wire: str | None = None,
        flexible: str | None = None,
    ) -> T:  # fmt: skip
        if default is ...:
            default = self.zero
        field = Field(self.name, None, versions, nullable, default, tag, tagged, ignorable, wire, flexible)
        return cast("T", field)

    def __repr__(self) -> str:
        return self.name


boolean = Primitive("bool", False)
int8 = Primitive("int8", 0)
int16 = Primitive("int16", 0)
uint16 = Primitive("uint16", 0)
int32 = Primitive("int32", 0)
int64 = Primitive("int64", 0)
float64 = Primitive("float64", 0.0)
uuid = Primitive("uuid", ZERO_UUID)
string = Primitive("string", "")
bytes_ = Primitive("bytes", b"")
records = Primitive("records", b"")


@overload
def array(
    element: Primitive[T], versions: str, *, nullable: str = ..., default: tuple[T, ...] | None = ...,
    tag: int | None = ..., tagged: str | None = ..., ignorable: bool = ..., wire: str | None = ...,
) -> tuple[T, ...]: ...  # fmt: skip
@overload
def array(
    element: type[S], versions: str, *, nullable: str = ..., default: tuple[S, ...] | None = ...,
    tag: int | None = ..., tagged: str | None = ..., ignorable: bool = ..., wire: str | None = ...,
) -> tuple[S, ...]: ...  # fmt: skip
def array(
    element: Primitive[Any] | type[Struct], versions: str, *, nullable: str = "none", default: object = (),
    tag: int | None = None, tagged: str | None = None, ignorable: bool = False, wire: str | None = None,
) -> object:  # fmt: skip
    """Declare an array field. Its value is a tuple, or None if nullable.

    `tag` is the field's tag in the versions `tagged` (default: all), and `wire` its name in Kafka. A version
    without the field cannot encode a value other than the default, unless the field is `ignorable`.
    """
    return Field("array", element, versions, nullable, default, tag, tagged, ignorable, wire, None)


def struct(
    element: type[S], versions: str, *, nullable: str = "none", default: S | EllipsisType | None = ...,
    tag: int | None = None, tagged: str | None = None, ignorable: bool = False, wire: str | None = None,
) -> S:  # fmt: skip
    """Declare a field with a struct type; its default is the struct with all defaults.

    The other parameters are those of `array`.
    """
    field = Field("struct", element, versions, nullable, default, tag, tagged, ignorable, wire, None)
    return cast("S", field)


def default_of(field: Field) -> object:
    """Return the value that a field has if it was not set, or if the version does not have it."""
    if field.default is ...:
        field.default = field.element()
    return field.default


SECRETS: Final = frozenset(("auth_bytes", "hmac", "salted_password", "server_key", "stored_key"))
"""Names of fields that contain credentials: `repr` does not show them."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructMeta(type):
    """Metaclass of `Struct`: turns the fields that a class body declares into slots of the class."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], space: dict[str, object], *, key: int = -1,
        versions: str = "0+", flexible: str = "none",
    ) -> StructMeta:  # fmt: skip
        fields = [value.named(name) for name, value in space.items() if isinstance(value, Field)]
        for field in fields:  # The slot takes the field's place; the declaration stays in __fields__.
            del space[field.name]
        space.setdefault("__slots__", tuple(f.name for f in fields))
        space["__fields__"] = tuple(fields)
        space["__key__"] = key
        space["__versions__"] = _versions(versions)
        space["__flexible__"] = _versions(flexible)
        space["__readers__"] = {}
        space["__writers__"] = {}
        return super().__new__(mcs, name, bases, space)

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, object], **_: object) -> None:
        super().__init__(name, bases, space)


class Struct(metaclass=StructMeta):
    """Base class of messages and nested structs: immutable values, compared by content."""

    __slots__ = ("unknown_tags",)
    if TYPE_CHECKING:  # A slot, but no field of the declaration.

        @property
        def unknown_tags(self) -> tuple[tuple[int, bytes], ...]: ...

    __fields__: ClassVar[tuple[Field, ...]]
    __key__: ClassVar[int]
    __versions__: ClassVar[Versions]
    __flexible__: ClassVar[Versions]
    # Compiled at first use; by version, and by (version, flexible, counted, lenient) for a nested struct.
    __readers__: ClassVar[dict[int | tuple[int, bool, bool, bool], Reader]]
    __writers__: ClassVar[dict[int | tuple[int, bool], Writer]]

    def __init__(self, **values: object) -> None:
        cls = type(self)
        cls.__init__ = _initialiser(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is a value: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, f.name) == getattr(other, f.name) for f in self.__fields__
        )

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in self.__fields__))

    def __repr__(self) -> str:
        shown = (
            f"{f.name}={'[hidden]' if f.name in SECRETS else repr(_as_bytes(getattr(self, f.name)))}"
            for f in self.__fields__
            if not self._is_default(f)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _remade, (type(self), {name: _as_bytes(value) for name, value in self._values().items()})

    def _values(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in self.__fields__} | {"unknown_tags": self.unknown_tags}

    def _is_default(self, field: Field) -> bool:
        return bool(getattr(self, field.name) == default_of(field))

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**(self._values() | changes))


def _as_bytes(value: object) -> object:
    """Copy a memoryview to bytes, which can be printed and pickled; return any other value unchanged."""
    return bytes(value) if isinstance(value, memoryview) else value


def _remade(cls: type[Struct], values: dict[str, object]) -> Struct:
    return cls(**values)


def setters(cls: type[Struct]) -> dict[str, Callable[[Struct, object], None]]:
    """Return the setters of all slots, named `_set_<field>`, for generated code that fills new values."""
    names = [f.name for f in cls.__fields__] + ["unknown_tags"]
    return {f"_set_{name}": getattr(cls, name).__set__ for name in names}


def _initialiser(cls: type[Struct]) -> Callable[..., None]:
    space: dict[str, Any] = dict(setters(cls))
    parameters, body = [], []
    for f in cls.__fields__:
        space[f"_default_{f.name}"] = default_of(f)
        parameters.append(f"{f.name}=_default_{f.name}")
        body.append(f"    _set_{f.name}(self, {f.name})")
    parameters.append("unknown_tags=()")
    body.append("    _set_unknown_tags(self, unknown_tags)")
    source = f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body)
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), space)
    made: Callable[..., None] = space["__init__"]
    return made
