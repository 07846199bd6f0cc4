"""What the pages say is so: links lead somewhere, files and commands exist, tables equal the code's."""

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

NO_SETTINGS = {
    "group.protocol", "group.version", "konvene.client", "metadata.version", "server.properties",
    "share.version", "streams.version", "transaction.version",
}  # fmt: skip
"""Dotted names that are something else: a client's setting, a package, a feature, a file."""

LEFT_OUT = {"internal.segment.bytes"}
"""Settings that change nothing and that nobody will miss: Kafka's own tests use them."""

SETTING = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)+(?:=.*)?")


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """A link within the repository names a file that is there, and a heading that the file has."""
    for link in links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page.name}: {link}"
        assert not fragment or fragment in anchors(target), f"{page.name}: {link}"


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    """A path of the repository between backticks is there."""
    for span in spans(page):
        if re.match(r"(?:src|tests|docs|bench)/", span):
            assert (ROOT / span).exists(), f"{page.name}: {span}"


@each_page
def test_sentences_stay_on_the_page(page: Path) -> None:
    """Lines of prose fit beside code; tables may be wider. Generated pages are left out."""
    if page.parent.name == "reference":
        return
    for line in prose(page).splitlines():
        assert len(line) <= 120 or line.startswith("|"), f"{page.name}: {line}"


def options(command: click.Command) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}


@pytest.mark.parametrize(("where", "line"), sorted(set(commands())), ids=lambda text: str(text)[:60])
def test_commands_that_are_shown_exist(where: str, line: str) -> None:
    """Each word behind `konvene` is a command, each option one of it."""
    words = shlex.split(line)[1:]
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


def test_the_readme_fits_on_two_screens() -> None:
    """What does not fit belongs to a guide or a reference page."""
    assert README.read_text("utf-8").count("\n") <= 100


def test_the_apis_of_the_reference_are_the_routers() -> None:
    """The page lists the names, keys and versions that the router serves."""
    expected = [
        [route.api.name, str(key), f"{route.first}–{route.last}"] for key, route in routes(HANDLERS).items()
    ]
    assert rows(APIS, "served") == expected
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"{len(expected)} of Kafka's APIs" in changes


@pytest.mark.parametrize("page", [README, APIS, DIFFERENCES], ids=lambda page: page.name)
def test_settings_that_are_named_are_settings(page: Path) -> None:
    """A dotted name between backticks is a setting of the broker or of topics, its value one it can have."""
    for span in spans(page):
        name, _, value = span.partition("=")
        if not SETTING.fullmatch(span) or name in NO_SETTINGS or name in NAMES_OF_KIPS:
            continue
        row = BROKER.get(name) or TOPIC.get(name)
        assert row is not None, f"{page.name}: {name}"
        if value:
            row.parse(value)


def obeyed() -> set[str]:
    """The settings that some code looks up, and those from which topics and groups take theirs."""
    read = {"broker.id", "log.dir", "log.dirs", *SINGLE_COPY}
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "configs" not in path.parts:
            read |= set(re.findall(r'\["([a-z0-9]+(?:\.[a-z0-9]+)*)"\]', path.read_text("utf-8")))
    read |= {*expiry.INTERVALS.values(), *pruning.INTERVAL_CONFIGS.values()}
    groups = {name for name in read if name in GROUP}
    synonyms = {name: row.synonyms for name, row in (TOPIC | GROUP).items() if name in read}
    limits = {limit for name in groups for limit in LIMITS.get(name, ()) if limit is not None}
    return read | limits | {synonym for names in synonyms.values() for synonym in names}


def test_settings_that_change_nothing_are_told() -> None:
    """The list of what is accepted and not obeyed is whole, and has nothing that is obeyed."""
    table = DIFFERENCES.read_text("utf-8").partition("### Settings that are accepted and not obeyed")[2]
    told = re.findall(r"`([a-z0-9.*]+)`", table)
    read = obeyed()
    known = [row for rows in (BROKER, TOPIC) for row in rows.values() if not row.unused]
    silent = {row.name for row in known} - read
    assert {name for name in silent if not any(fnmatch(name, pattern) for pattern in told)} == LEFT_OUT
    assert [name for name in told if "*" not in name and name not in silent] == []


def test_words_of_the_glossary_stand_in_order() -> None:
    """A reader finds a word where the alphabet has it."""
    words = re.findall(r"^\*\*([^*]+)\*\*", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.casefold)
    assert len(words) == len(set(words))


def test_decisions_are_numbered_and_listed() -> None:
    """Each has its page, its number and its three parts, and the list names it by its title."""
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
