"""Generates a reader and a writer for each message class and version.

For each (struct, version) one Python function is generated and cached: runs of fixed-width fields become one
`struct.unpack_from`, absent fields become constants, and no version is checked while bytes are read. `decode`
and `encode` are the entry points; hostile bytes inside a generated function always cause a `CodecError`.

Memory: a count is accepted only if that many of the smallest possible elements fit into the remaining bytes,
so a frame can create no more objects than it has bytes. Small, frequent objects (a tiny record batch, a
negative int8, an empty tag) are shared or cheap. In the worst case a byte of the frame costs 40 bytes of
objects, which `tests/codec/test_hostile.py` measures. That is safe for frames of ordinary size. A larger
frame is read by a second generated function that also sums up the memory of its elements and tags, and
rejects a frame that needs more than `MOST_MEMORY`.

Text has to be valid UTF-8, except in requests: those are read once more, by a third generated function, which
replaces malformed text (`text`) and has the memory budget too.

Readers return `(value, next position)`; writers append byte strings to a list, so that large record batches
are passed on without a copy.
"""

from __future__ import annotations

import struct as _struct
from typing import TypeVar, cast

from konvene.codec.errors import CannotEncode, CodecError, Malformed, Truncated
from konvene.codec.generated import MOST_TEXT, Source, budget
from konvene.codec.schema import Field, Primitive, Reader, Struct, Writer, default_of, setters

S = TypeVar("S", bound=Struct)

FIXED = {
    "bool": ("?", 1), "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4),
    "int64": ("q", 8), "float64": ("d", 8), "uuid": ("16s", 16),
}  # fmt: skip


COUNTED_FROM = 1 << 20
"""Frames larger than this are read with a memory budget."""

MOST_MEMORY = 512 << 20
"""Memory budget of such a frame: a million partitions of a Fetch, and some more."""


def decode(cls: type[S], version: int, data: bytes, position: int = 0) -> S:
    """Read one value that fills `data[position:]`. Raises `CodecError`, also if bytes remain after it."""
    value, end = decode_from(cls, version, data, position)
    if end != len(data):
        raise Malformed(f"{cls.__name__} v{version}: {len(data) - end} bytes left over")
    return value


def decode_from(
    cls: type[S],
    version: int,
    data: bytes | bytearray,
    position: int = 0,
    end: int | None = None,
    *,
    lenient: bool = False,
) -> tuple[S, int]:
    """Read one value that starts at `position` and ends before `end`; return it and the next position.

    `lenient`: replace text that is not valid UTF-8, as Kafka's brokers do in requests."""
    if end is None:
        end = len(data)
    read = cls.__readers__.get(version) or _make_reader(cls, version)
    try:
        if end - position > COUNTED_FROM:
            budget.left = MOST_MEMORY
            read = _struct_reader(cls, version, version in cls.__flexible__, counted=True)
        try:
            value, position = read(data, position, end)
        except UnicodeDecodeError:
            if not lenient:
                raise
            budget.left = MOST_MEMORY
            read = _struct_reader(cls, version, version in cls.__flexible__, counted=True, lenient=True)
            value, position = read(data, position, end)
        if position > end:
            raise Truncated("the bytes end too early")
    except CodecError as error:
        raise type(error)(f"{cls.__name__} v{version}: {error}") from None
    except (IndexError, _struct.error):
        raise Truncated(f"{cls.__name__} v{version}: the bytes end too early") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{cls.__name__} v{version}: text is not UTF-8 ({error.reason})") from None
    return cast("S", value), position


def encode(value: Struct, version: int) -> bytes:
    """Write one value. Raises `CannotEncode` if the version cannot represent it."""
    parts: list[bytes] = []
    encode_into(value, version, parts)
    return b"".join(parts)


def encode_into(value: Struct, version: int, parts: list[bytes]) -> None:
    """Append the encoding of `value` to `parts`; byte fields are appended without a copy."""
    cls = type(value)
    write = cls.__writers__.get(version) or _make_writer(cls, version)
    try:
        write(value, parts.append)
    except (_struct.error, AttributeError, TypeError, UnicodeEncodeError, OverflowError) as error:
        raise CannotEncode(f"{cls.__name__} v{version}: {error}") from error


# --- readers -----------------------------------------------------------------------------------------


def _is_flexible(field: Field, flexible: bool, version: int) -> bool:
    return flexible if field.flexible is None else version in field.flexible


def _check_version(cls: type[Struct], version: int) -> None:
    if version not in cls.__versions__:
        raise CannotEncode(f"{cls.__name__} has no version {version} (it has {cls.__versions__})")


def _make_reader(cls: type[Struct], version: int) -> Reader:
    _check_version(cls, version)
    read = cls.__readers__[version] = _struct_reader(cls, version, version in cls.__flexible__)
    return read


def _struct_reader(
    cls: type[Struct], version: int, flexible: bool, *, counted: bool = False, lenient: bool = False
) -> Reader:
    made = cls.__readers__.get((version, flexible, counted, lenient))
    if made is not None:
        return made
    out = Source(counted=counted, lenient=lenient)
    out.space.update(setters(cls))
    out.space["_cls"] = cls
    tagged = [f for f in cls.__fields__ if version in f.versions and f.is_tagged(version)]
    plain = [f for f in cls.__fields__ if version in f.versions and not f.is_tagged(version)]
    _read_fields(out, plain, version, flexible)
    out.add("value = _new(_cls)")
    for f in cls.__fields__:
        if f in plain:
            out.add(f"_set_{f.name}(value, v_{f.name})")
        elif f not in tagged:
            out.add(f"_set_{f.name}(value, {out.name('default', default_of(f))})")
    if not flexible:
        out.add("_set_unknown_tags(value, ())")
    else:
        _read_tag_section(out, tagged, version)
    out.add("return value, pos")
    read = out.reader(f"{cls.__name__} v{version}")
    cls.__readers__[version, flexible, counted, lenient] = read
    return read


def _read_tag_section(out: Source, tagged: list[Field], version: int) -> None:
    readers = {f.tag: (f.name, _field_reader(f, version, out.counted, out.lenient)) for f in tagged}
    out.add("if data[pos]:")
    read = "_read_counted_tags" if out.counted else "_read_tags"
    out.add(f"    tags, unknown, pos = {read}(data, pos, end, {out.name('known', readers)})")
    out.add("    _set_unknown_tags(value, unknown)")
    for f in tagged:
        default = out.name("default", default_of(f))
        out.add(f"    _set_{f.name}(value, tags.get({f.name!r}, {default}))")
    out.add("else:")
    out.add("    pos += 1")
    out.add("    _set_unknown_tags(value, ())")
    for f in tagged:
        out.add(f"    _set_{f.name}(value, {out.name('default', default_of(f))})")


def _field_reader(field: Field, version: int, counted: bool, lenient: bool) -> Reader:
    """Generate the function that reads the value of one tagged field.

    With `counted` it also sums up the memory of the elements that it reads; with `lenient` it replaces
    malformed text.
    """
    out = Source(counted=counted, lenient=lenient)
    if field.kind == "struct" and version in field.nullable:
        # Within a tag a null struct is a zero byte; a present one still has its marker in front.
        read = out.name(
            "read", _struct_reader(field.element, version, True, counted=counted, lenient=lenient)
        )
        out.add("if data[pos] == 0: return None, pos + 1")
        out.add("if data[pos] != 1: raise _Malformed('a struct marker that is neither 0 nor 1')")
        out.add(f"v_{field.name}, pos = {read}(data, pos + 1, end)")
    else:
        _read_fields(out, [field], version, True)
    out.add(f"return v_{field.name}, pos")
    return out.reader(f"tag {field.wire} v{version}")


def _read_fields(out: Source, fields: list[Field], version: int, flexible: bool) -> None:
    run: list[Field] = []
    for f in fields:
        if f.kind in FIXED:
            run.append(f)
            continue
        _read_run(out, run)
        run = []
        target = f"v_{f.name}"
        nullable = version in f.nullable
        if f.kind in ("string", "bytes", "records"):
            _read_blob(out, target, f.kind, f.wire, nullable, _is_flexible(f, flexible, version))
        elif f.kind == "array":
            _read_array(out, target, f, nullable, version, flexible)
        else:
            _read_struct(out, target, f, nullable, version, flexible)
    _read_run(out, run)


def _read_run(out: Source, run: list[Field]) -> None:
    if not run:
        return
    layout = _struct.Struct(">" + "".join(FIXED[f.kind][0] for f in run))
    names = ", ".join(f"v_{f.name}" for f in run)
    out.add(f"{names}, = {out.name('unpack', layout.unpack_from)}(data, pos)")
    out.add(f"pos += {layout.size}")
    out.add("if pos > end: raise _Truncated('the bytes end within a number')")
    for f in run:
        if f.kind == "uuid":
            out.add(f"v_{f.name} = _Uuid(v_{f.name})")


def _read_length(out: Source, compact: bool, width: int) -> None:
    """Generate code that reads a length into `n`; -1 means null.

    `width` is the size of a length that is not compact: 2 bytes for a string, 4 for bytes and arrays.
    """
    if compact:
        out.add("n = data[pos]; pos += 1")
        out.add(f"if n >= 128: n, pos = {'_text_rest' if width == 2 else '_uvarint_rest'}(data, pos, n)")
        out.add("n -= 1")
    else:
        layout = _struct.Struct(">h" if width == 2 else ">i")
        out.add(f"n, = {out.name('length', layout.unpack_from)}(data, pos)")
        out.add(f"pos += {width}")


def _read_blob(out: Source, target: str, kind: str, name: str, nullable: bool, compact: bool) -> None:
    _read_length(out, compact, 2 if kind == "string" else 4)
    out.add("stop = pos + n")
    take = {
        "string": "_decode_text(data[pos:stop])" if out.lenient else "data[pos:stop].decode()",
        "bytes": "data[pos:stop]",
        # Fewer bytes than a batch's header are none: a view would cost many times as much as they do.
        "records": "_memoryview(data)[pos:stop] if n > 60 else data[pos:stop]",
    }
    if nullable:
        out.add(f"if n == -1: {target} = None")
        out.add("else:")
        out.indent += 1
    out.add(f"if n < 0 or stop > end: _bad_length({name!r}, n, end - pos)")
    out.add(f"{target} = {take[kind]}")
    out.add("pos = stop")
    if nullable:
        out.indent -= 1


def _read_struct(out: Source, target: str, f: Field, nullable: bool, version: int, flexible: bool) -> None:
    read = out.name(
        "read", _struct_reader(f.element, version, flexible, counted=out.counted, lenient=out.lenient)
    )
    if not nullable:
        out.add(f"{target}, pos = {read}(data, pos, end)")
        return
    out.add("if data[pos] == 255:")
    out.add(f"    {target} = None; pos += 1")
    out.add("elif data[pos] != 1: raise _Malformed('a struct marker that is neither 1 nor -1')")
    out.add("else:")
    out.add(f"    {target}, pos = {read}(data, pos + 1, end)")


def _read_array(out: Source, target: str, f: Field, nullable: bool, version: int, flexible: bool) -> None:
    _read_length(out, flexible, 4)
    least = _least_size(f.element, version, flexible)
    out.add(f"if n == 0: {target} = ()")
    if nullable:
        out.add(f"elif n == -1: {target} = None")
    out.add(f"elif n < 0 or n * {least} > end - pos: _bad_length({f.wire!r}, n, end - pos)")
    out.add("else:")
    out.indent += 1
    if out.counted:
        out.add(f"_spend(n * {_weight(f.element)})")
    element = f.element
    if isinstance(element, Primitive) and element.name in FIXED and element.name != "uuid":
        layout, size = FIXED[element.name]
        if element.name == "int8":  # Python shares one object for each int above -6; this, for all.
            out.add(f"{target} = _tuple(_map(_INT8, data[pos:pos + n])); pos += n")
        else:
            out.add(f"{target} = _unpack('>%d{layout}' % n, data, pos); pos += n * {size}")
    else:
        out.add("items = []; keep = items.append")
        if isinstance(element, Primitive):
            out.add("for _ in range(n):")
            out.indent += 1
            if element.name == "uuid":
                out.add("item = _Uuid(data[pos:pos + 16]); pos += 16")
            else:
                out.add("count = n")
                _read_blob(out, "item", element.name, f.wire, False, flexible)
                out.add("n = count")
            out.add("keep(item)")
            out.indent -= 1
        else:
            read = out.name(
                "read", _struct_reader(element, version, flexible, counted=out.counted, lenient=out.lenient)
            )
            out.add("for _ in range(n):")
            out.add(f"    item, pos = {read}(data, pos, end); keep(item)")
        out.add(f"{target} = tuple(items)")
    out.indent -= 1


def _least_size(element: Primitive[object] | type[Struct], version: int, flexible: bool) -> int:
    """Return the smallest encoded size of one array element, in bytes.

    `flexible`: the message version is a flexible one, in which lengths are varints.
    """
    if isinstance(element, Primitive):
        return _least_field(element.name, flexible)
    size = 1 if flexible else 0
    for f in element.__fields__:
        if version in f.versions and not f.is_tagged(version):
            if f.kind == "struct":
                size += 1 if version in f.nullable else _least_size(f.element, version, flexible)
            else:
                size += _least_field(f.kind, _is_flexible(f, flexible, version))
    return max(size, 1)


def _least_field(kind: str, compact: bool) -> int:
    if kind in FIXED:
        return FIXED[kind][1]
    if compact:
        return 1
    return 2 if kind == "string" else 4


# What objects weigh in CPython, rounded up, with their places in a list and in the tuple made of it.
_PLACE, _STRUCT_WEIGHT, _SLOT = 24, 64, 8
_WEIGHTS = {"bool": 0, "int8": 0, "uuid": 128, "string": 80, "bytes": 48, "records": 208, "array": 56}


def _weight(element: Primitive[object] | type[Struct]) -> int:
    """Return the memory (bytes) of one array element when decoded, without arrays nested in it.

    Those are counted when they are read.
    """
    if isinstance(element, Primitive):
        return _PLACE + _WEIGHTS.get(element.name, 32)
    return _PLACE + _struct_weight(element)


def _struct_weight(cls: type[Struct]) -> int:
    inner = (
        _struct_weight(f.element) if f.kind == "struct" else _WEIGHTS.get(f.kind, 32) for f in cls.__fields__
    )
    return _STRUCT_WEIGHT + _SLOT * len(cls.__fields__) + sum(inner)


# --- writers -------------------------------------------------------------------------------------


def _make_writer(cls: type[Struct], version: int) -> Writer:
    _check_version(cls, version)
    write = cls.__writers__[version] = _struct_writer(cls, version, version in cls.__flexible__)
    return write


def _struct_writer(cls: type[Struct], version: int, flexible: bool) -> Writer:
    made = cls.__writers__.get((version, flexible))
    if made is not None:
        return made
    out = Source()
    tagged = []
    plain = []
    for f in cls.__fields__:
        if version not in f.versions:
            if not f.ignorable:
                default = out.name("default", default_of(f))
                out.add(f"if value.{f.name} != {default}: _no_place({f.wire!r}, {version})")
        elif f.is_tagged(version):
            tagged.append(f)
        else:
            plain.append(f)
    _write_fields(out, plain, version, flexible)
    if flexible:
        _write_tag_section(out, tagged, version)
    write = out.writer(f"{cls.__name__} v{version}")
    cls.__writers__[version, flexible] = write
    return write


def _write_tag_section(out: Source, tagged: list[Field], version: int) -> None:
    if not tagged:
        out.add("if value.unknown_tags: _write_tags(list(value.unknown_tags), w)")
        out.add("else: w(b'\\0')")
        return
    out.add("tags = list(value.unknown_tags)")
    for f in tagged:
        default = out.name("default", default_of(f))
        write = out.name("tag", _tag_writer(f, version))
        out.add(f"if value.{f.name} != {default}:")
        out.add("    parts = []")
        out.add(f"    {write}(value, parts.append)")
        out.add(f"    tags.append(({f.tag}, b''.join(parts)))")
    out.add("if tags: _write_tags(tags, w)")
    out.add("else: w(b'\\0')")


def _tag_writer(f: Field, version: int) -> Writer:
    out = Source()
    if f.kind == "struct" and version in f.nullable:
        write = out.name("write", _struct_writer(f.element, version, True))
        out.add(f"x = value.{f.name}")
        out.add("if x is None: w(b'\\0')")
        out.add("else:")
        out.add(f"    w(b'\\1'); {write}(x, w)")
    else:
        _write_fields(out, [f], version, True)
    return out.writer(f"tag {f.wire} v{version}")


def _write_fields(out: Source, fields: list[Field], version: int, flexible: bool) -> None:
    run: list[Field] = []
    for f in fields:
        if f.kind in FIXED:
            run.append(f)
            continue
        _write_run(out, run)
        run = []
        out.add(f"x = value.{f.name}")
        nullable = version in f.nullable
        if f.kind in ("string", "bytes", "records"):
            _write_blob(out, f.kind, nullable, _is_flexible(f, flexible, version), f.wire == "ErrorMessage")
        elif f.kind == "array":
            _write_array(out, f, nullable, version, flexible)
        else:
            write = out.name("write", _struct_writer(f.element, version, flexible))
            if nullable:
                out.add("if x is None: w(b'\\xff')")
                out.add("else:")
                out.add(f"    w(b'\\1'); {write}(x, w)")
            else:
                out.add(f"{write}(x, w)")
    _write_run(out, run)


def _write_run(out: Source, run: list[Field]) -> None:
    if not run:
        return
    layout = _struct.Struct(">" + "".join(FIXED[f.kind][0] for f in run))
    values = ", ".join(f"value.{f.name}" for f in run)
    out.add(f"w({out.name('pack', layout.pack)}({values}))")


def _write_length(out: Source, size: str, compact: bool, width: int) -> None:
    if compact:
        out.add(f"n = {size} + 1")
        out.add(f"w(_SHORT[n] if n < 16384 else {'_text_length' if width == 2 else '_length'}(n))")
    else:
        out.add(f"w({out.name('length', _struct.Struct('>h' if width == 2 else '>i').pack)}({size}))")


def _write_blob(out: Source, kind: str, nullable: bool, compact: bool, cut: bool = False) -> None:
    """Generate code that writes a string or bytes field. With `cut`, a string that is too long is truncated
    instead of rejected (error messages)."""
    width = 2 if kind == "string" else 4
    if nullable:
        null = b"\0" if compact else b"\xff" * width
        out.add(f"if x is None: w({null!r})")
        out.add("else:")
        out.indent += 1
    if kind == "string":
        out.add("x = x.encode()")
        if cut:
            out.add(f"if len(x) > {MOST_TEXT}: x = x[:{MOST_TEXT}].decode(errors='ignore').encode()")
    _write_length(out, "len(x)", compact, width)
    out.add("w(x)")
    if nullable:
        out.indent -= 1


def _write_array(out: Source, f: Field, nullable: bool, version: int, flexible: bool) -> None:
    if nullable:
        null = b"\0" if flexible else b"\xff\xff\xff\xff"
        out.add(f"if x is None: w({null!r})")
        out.add("else:")
        out.indent += 1
    _write_length(out, "len(x)", flexible, 4)
    element = f.element
    if isinstance(element, Primitive) and element.name in FIXED:
        out.add(f"w(_pack('>' + '{FIXED[element.name][0]}' * len(x), *x))")
    elif isinstance(element, Primitive):
        out.add("for x in x:")
        out.indent += 1
        _write_blob(out, element.name, False, flexible)
        out.indent -= 1
    else:
        write = out.name("write", _struct_writer(element, version, flexible))
        out.add(f"for item in x: {write}(item, w)")
    if nullable:
        out.indent -= 1
