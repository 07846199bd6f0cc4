"""Check the pages against the repository: links, files, commands, configs and tables."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest
from tests.docs.pages import PAGES, ROOT, anchors, commands, links, prose, rows, spans

from konvene.broker.net.frames import routes
from konvene.broker.net.router import HANDLERS
from konvene.cli.app import konvene
from konvene.configs.broker.table import BROKER, SINGLE_COPY
from konvene.configs.config import NAMES_OF_KIPS
from konvene.configs.group import GROUP, LIMITS
from konvene.configs.topic import TOPIC
from konvene.share_state import pruning
from konvene.transactions import expiry

README = ROOT / "README.md"
APIS = ROOT / "docs" / "reference" / "apis.md"
DIFFERENCES = ROOT / "docs" / "differences.md"
GLOSSARY = ROOT / "docs" / "glossary.md"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

NOT_CONFIGS = {
    "group.protocol", "group.version", "konvene.client", "metadata.version", "server.properties",
    "share.version", "streams.version", "transaction.version",
}  # fmt: skip
"""Dotted names that are not broker configs: client configs, packages, features, files."""

UNDOCUMENTED = {"internal.segment.bytes"}
"""Configs without effect that the page omits: only Kafka's own tests use them."""

SETTING = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)+(?:=.*)?")


@each_page
def test_links_have_existing_targets(page: Path) -> None:
    """A link within the repository names an existing file and an existing heading of it."""
    for link in links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page.name}: {link}"
        assert not fragment or fragment in anchors(target), f"{page.name}: {link}"


@each_page
def test_named_files_exist(page: Path) -> None:
    """A repository path in a code span exists."""
    for span in spans(page):
        if re.match(r"(?:src|tests|docs|bench)/", span):
            assert (ROOT / span).exists(), f"{page.name}: {span}"


@each_page
def test_lines_of_prose_have_at_most_120_columns(page: Path) -> None:
    """Tables may be wider, and generated pages are exempt."""
    if page.parent.name == "reference":
        return
    for line in prose(page).splitlines():
        assert len(line) <= 120 or line.startswith("|"), f"{page.name}: {line}"


def options(command: click.Command) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}


@pytest.mark.parametrize(("where", "line"), sorted(set(commands())), ids=lambda text: str(text)[:60])
def test_shown_commands_exist(where: str, line: str) -> None:
    """Each word after `konvene` is a command of the CLI, and each option is an option of that command."""
    words = shlex.split(line)[1:]
    if words[:1] == ["--profile"]:
        words = words[2:]
    command: click.Command = konvene
    context = click.Context(konvene)
    while words and isinstance(command, click.Group):
        if words[0].startswith("-"):
            break
        found = command.get_command(context, words.pop(0).rstrip(","))
        assert found is not None, f"{where}: {line}"
        command = found
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in options(command), f"{where}: {word} of {line}"


def test_readme_has_at_most_100_lines() -> None:
    """Longer explanations belong to a guide or a reference page."""
    assert README.read_text("utf-8").count("\n") <= 100


def test_reference_lists_the_routed_apis() -> None:
    """The page lists the names, keys and versions that the router serves."""
    expected = [
        [route.api.name, str(key), f"{route.first}–{route.last}"] for key, route in routes(HANDLERS).items()
    ]
    assert rows(APIS, "served") == expected
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"{len(expected)} of Kafka's APIs" in changes


@pytest.mark.parametrize("page", [README, APIS, DIFFERENCES], ids=lambda page: page.name)
def test_named_configs_exist(page: Path) -> None:
    """A dotted name in a code span is a broker or topic config, and its value, if any, is valid."""
    for span in spans(page):
        name, _, value = span.partition("=")
        if not SETTING.fullmatch(span) or name in NOT_CONFIGS or name in NAMES_OF_KIPS:
            continue
        row = BROKER.get(name) or TOPIC.get(name)
        assert row is not None, f"{page.name}: {name}"
        if value:
            row.parse(value)


LISTENER_MODULES = {"listeners.py", "listener_security.py", "key_sets.py", "jwt.py", "urls.py"}
"""Modules that read the configs of listeners, by `get` and by constants."""

NAMED_IN_PARTS = {
    "ssl.keystore.type", "ssl.truststore.type", "sasl.oauthbearer.allow.unverified.issuer",
}  # fmt: skip
"""Configs whose names the code puts together."""


def used_configs() -> set[str]:
    """Return the configs that the code reads, and the synonyms and limits of topic and group configs."""
    read = {"broker.id", "log.dir", "log.dirs", *SINGLE_COPY, *NAMED_IN_PARTS}
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text("utf-8")
        if "configs" not in path.parts:
            read |= set(re.findall(r'\["([a-z0-9]+(?:\.[a-z0-9]+)*)"\]', text))
        if path.name in LISTENER_MODULES or "tls" in path.relative_to(ROOT).parts:
            read |= set(re.findall(r'"([a-z0-9]+(?:\.[a-z0-9]+)+)"', text))
            read |= {f"sasl.oauthbearer.{name}" for name in re.findall(r"\{PREFIX\}([a-z.]+[a-z])", text)}
    read |= {*expiry.INTERVALS.values(), *pruning.INTERVAL_CONFIGS.values()}
    groups = {name for name in read if name in GROUP}
    synonyms = {name: row.synonyms for name, row in (TOPIC | GROUP).items() if name in read}
    limits = {limit for name in groups for limit in LIMITS.get(name, ()) if limit is not None}
    return read | limits | {synonym for names in synonyms.values() for synonym in names}


def test_configs_without_effect_are_documented() -> None:
    """The list of accepted configs without effect is complete and contains no config that is used."""
    table = DIFFERENCES.read_text("utf-8").partition("### Settings that are accepted and not obeyed")[2]
    listed = re.findall(r"`([a-z0-9.*]+)`", table)
    read = used_configs()
    known = [row for rows in (BROKER, TOPIC) for row in rows.values() if not row.unused]
    without_effect = {row.name for row in known} - read
    assert {
        name for name in without_effect if not any(fnmatch(name, pattern) for pattern in listed)
    } == UNDOCUMENTED
    assert [name for name in listed if "*" not in name and name not in without_effect] == []


def test_glossary_is_sorted() -> None:
    """Terms of the glossary are unique and in alphabetical order."""
    words = re.findall(r"^\*\*([^*]+)\*\*", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.casefold)
    assert len(words) == len(set(words))


def test_decisions_are_numbered_and_listed() -> None:
    """Each decision has a numbered page with three sections, and the index lists its title."""
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    listed = (folder / "README.md").read_text("utf-8")
    assert [page.name[:4] for page in pages] == [f"{n:04}" for n in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text("utf-8")
        head = text.splitlines()[0]
        assert re.fullmatch(rf"# {page.name[:4]}: .+", head)
        assert f"[{page.name[:4]}]({page.name}) | {head[8:]} |" in listed
        parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequences"]
