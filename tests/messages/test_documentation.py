"""Documentation of messages: each field has one sentence, and each API's module lists its errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import konvene.messages
import konvene.records
from konvene.errors import Errors
from konvene.messages import API_KEYS, Api

MESSAGES = Path(konvene.messages.__file__).parent
RECORDS = Path(konvene.records.__file__).parent
DECLARATIONS = sorted([*MESSAGES.glob("*.py"), *RECORDS.glob("*.py")])

ERRORS = re.compile(
    r"^(?:Errors|Kafka's errors \(konvene does not serve this API\)): ([A-Z_, \n]+)\.$", re.MULTILINE
)


def structs(module: ast.Module) -> Iterator[ast.ClassDef]:
    for node in module.body:
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Struct" for base in node.bases):
            yield node


def sentence_after(body: list[ast.stmt], index: int) -> str | None:
    """Return the docstring that follows the field at `index`, or None if it has none."""
    following = body[index + 1] if index + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return following.value.value if isinstance(following.value.value, str) else None
    return None


@pytest.mark.parametrize("file", DECLARATIONS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_field_has_a_sentence(file: Path) -> None:
    for struct in structs(ast.parse(file.read_text("utf-8"))):
        for index, node in enumerate(struct.body):
            if isinstance(node, ast.AnnAssign):
                sentence = sentence_after(struct.body, index)
                field = f"{struct.name}.{ast.unparse(node.target)}"
                assert sentence is not None, f"{field} has no sentence"
                assert sentence[0].isupper() or sentence[0].isdigit() or sentence[0] in "-`", field
                assert sentence.endswith("."), f"{field}: {sentence!r}"


def test_the_field_declarations_are_found() -> None:
    fields = [
        node
        for file in DECLARATIONS
        for struct in structs(ast.parse(file.read_text("utf-8")))
        for node in struct.body
        if isinstance(node, ast.AnnAssign)
    ]
    assert len(fields) > 2_000


@pytest.mark.parametrize("api", API_KEYS.values(), ids=lambda api: api.name)
def test_every_api_lists_its_errors(api: Api) -> None:
    text = ast.get_docstring(ast.parse((MESSAGES / f"{api.module}.py").read_text("utf-8"))) or ""
    assert text.startswith(f"{api.name} (API key {api.key}): "), text
    listed = ERRORS.search(text)
    assert listed is not None, f"{api.module} does not list its errors"
    names = [name.strip() for name in listed[1].split(",")]
    assert set(names) <= set(Errors.__members__)
    assert len(set(names)) == len(names)
    assert "NONE" not in names
