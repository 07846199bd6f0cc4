"""The console's server over HTTP: live views, requests, files, refusals, outages, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.commands import RunningBroker, running_broker
from tests.console.running import (
    DEADLINE_S,
    RunningConsole,
    State,
    is_live,
    kill,
    port_of,
    running_console,
    served_on,
)

from konvene.console.security import CONTENT_SECURITY_POLICY, COOKIE, HEADER, RESPONSE_HEADERS

SETTINGS = {"group.min.session.timeout.ms": "1", "group.consumer.min.session.timeout.ms": "1"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topic `orders` with 10 and 6 records; the group `app` has committed offsets of it."""
    with running_broker(tmp_path_factory.mktemp("data"), SETTINGS) as broker:
        broker.create("orders", 10, 6)
        broker.commit("app", "orders", p0=4, p1=6)
        yield broker


@pytest.fixture(scope="module")
def console(broker: RunningBroker) -> Iterator[RunningConsole]:
    with running_console(broker.address) as console:
        yield console


@pytest.fixture(scope="module")
def changing(broker: RunningBroker) -> Iterator[RunningConsole]:
    """A console that allows changes."""
    with running_console(broker.address, allow_changes=True) as console:
        yield console


# live views -----------------------------------------------------------------------------------


def has_group(name: str) -> Callable[[State], bool]:
    return lambda state: is_live(state) and name in state["groups"]


def test_groups_are_reset_and_then_changed(broker: RunningBroker, console: RunningConsole) -> None:
    with console.view("groups") as stream:
        assert stream.status == 200 and stream.media_type.startswith("text/event-stream")
        event = stream.event()
        assert event is not None and event[0] == "reset"
        stream.until(has_group("app"))
        row = stream.state["groups"]["app"]
        assert (row["state"], row["members"], row["lag"], row["last"]) == ("Empty", 0, 6, None)
        facts = stream.state["facts"]
        assert facts["bootstrap"] == broker.address and facts["allow_changes"] is False
        assert abs(facts["now_ms"] - time.time() * 1000) < 3_600_000
        broker.join("joined", ["orders"], None, None)
        stream.until(lambda state: has_group("joined")(state) and state["groups"]["joined"]["members"] == 2)
        stream.until(lambda state: state["groups"]["joined"]["last"] is not None)
        assert (
            sum(stream.state["groups"]["joined"]["hours"]) == stream.state["groups"]["joined"]["rebalances"]
        )


def test_a_group_changes_with_its_members(broker: RunningBroker, console: RunningConsole) -> None:
    with console.view("group", group="g/ä") as stream:
        event = stream.event()
        assert event is not None and event[0] == "reset"
        stream.until(is_live)
        assert stream.state["facts"]["exists"] is False and stream.state["facts"]["id"] == "g/ä"
        (member_id,) = broker.join("g/ä", ["orders"], "one")
        stream.until(lambda state: member_id in state.get("members", {}) and state["rebalances"])
        member = stream.state["members"][member_id]
        assert (member["name"], member["owned"], member["units"]) == ("one", 2, "orders:0-1")
        assert stream.state["units"]["orders:0"]["owner"] == member_id
        (key,) = stream.state["rebalances"]
        with console.view("rebalance", group="g/ä", key=key) as why:
            event = why.event()
            assert event is not None and event[0] == "reset"
            why.until(lambda state: state["facts"]["exists"])
            assert why.state["steps"] and list(why.state["members"]) == [member_id]
            assert why.state["facts"]["next"] is None
            broker.join("g/ä", ["orders"], "one", "two")
            event = why.event()
            assert event is not None and event[0] == "change"
            why.until(lambda state: state["facts"]["next"] is not None)


def test_topics_change_with_their_records(broker: RunningBroker, console: RunningConsole) -> None:
    broker.create("growing", 3)
    with console.view("topics") as topics, console.view("topic", topic="growing") as topic:
        for stream in (topics, topic):
            event = stream.event()
            assert event is not None and event[0] == "reset"
        topics.until(lambda state: state.get("topics", {}).get("growing", {}).get("records") == 3)
        topic.until(lambda state: state.get("partitions", {}).get("0", {}).get("end") == 3)
        assert topic.state["configs"]["retention.ms"]["value"] == "-1"
        broker.commit("reader", "growing", p0=1)
        topic.until(lambda state: state["groups"].get("reader", {}).get("lag") == 2)
        topics.until(lambda state: state["topics"]["growing"]["groups"] == 1)


def test_what_is_absent_is_shown_as_absent(console: RunningConsole) -> None:
    with console.view("topic", topic="no such") as stream:
        stream.until(lambda state: state["facts"].get("exists") is False)
    with console.view("rebalance", group="app", key="no such") as stream:
        stream.until(lambda state: state["facts"].get("exists") is False)


def test_viewers_of_one_view_receive_the_same(broker: RunningBroker, console: RunningConsole) -> None:
    with console.view("groups") as first, console.view("groups") as second:
        for stream in (first, second):
            stream.until(has_group("app"))
        broker.commit("later", "orders", p0=1)
        for stream in (first, second):
            stream.until(lambda state: state["groups"].get("later", {}).get("lag") == 9)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("view=nonsense", "there is no view 'nonsense'; views are groups, group, rebalance, topics, topic"),
        ("view=group", "the view group needs group"),
        ("view=rebalance&group=g", "the view rebalance needs key"),
        ("", "there is no view ''; views are groups, group, rebalance, topics, topic"),
    ],
)
def test_unknown_views_are_not_found(console: RunningConsole, query: str, error: str) -> None:
    response = console.get(f"/api/live?{query}")
    assert (response.status, response.json) == (404, {"error": error, "hint": None})


# refusals -------------------------------------------------------------------------------------


def test_other_names_of_the_server_are_refused(console: RunningConsole) -> None:
    port = console.address[1]
    for host in ("localhost", "127.0.0.1", f"localhost:{port}"):
        assert console.get("/", Host=host).status == 200
    for path in ("/", "/api/live?view=groups", "/static/main.js"):
        response = console.get(path, Host="evil.example")
        assert response.status == 421 and "--allowed-host evil.example" in response.json["hint"]


def test_requests_of_other_sites_are_refused(changing: RunningConsole) -> None:
    def status(**headers: str) -> int:
        return changing.request("POST", "/api/actions/delete-group", b"{}", **headers).status

    assert status(**{HEADER: "1"}) == 400
    assert status() == 403
    assert status(**{HEADER: "1"}, Origin="http://evil.example") == 403
    assert status(**{HEADER: "1"}, Sec_Fetch_Site="cross-site") == 403
    assert changing.get("/api/messages?topic=orders", Sec_Fetch_Site="cross-site").status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(console: RunningConsole, method: str) -> None:
    assert console.request(method, "/api/messages").status == 403
    assert console.request(method, "/api/messages", **{HEADER: "1"}).status == 405
    assert console.request(method, "/", **{HEADER: "1"}).status == 405


def test_a_get_changes_nothing(changing: RunningConsole) -> None:
    response = changing.get("/api/produce?topic=orders&value=x")
    assert response.status == 404 and response.json["error"] == "there is no /api/produce"


def test_a_token_is_exchanged_for_a_cookie(broker: RunningBroker) -> None:
    with running_console(broker.address, token="s3cret") as console:
        assert console.get("/").status == 401
        assert console.get("/static/main.js").status == 401
        assert console.get("/?token=wrong").status == 401
        answer = console.get("/groups/app?tab=members&token=s3cret")
        assert (answer.status, answer.headers["location"]) == (303, "/groups/app?tab=members")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert cookie.startswith(f"{COOKIE}=s3cret;")
        assert console.get("/groups/app", Cookie=f"{COOKIE}=s3cret").status == 200
        assert console.get("/", Authorization="Bearer s3cret").status == 200
        answer = console.get("//evil.example/?token=s3cret")
        assert (answer.status, answer.headers["location"]) == (303, "/evil.example/")


# files ----------------------------------------------------------------------------------------


def test_the_page_is_served_for_every_path_with_its_policy(console: RunningConsole) -> None:
    page = console.get("/")
    for path in (
        "/groups/a%2Fb",
        "/groups/%2e%2e",
        "/topics/x/messages?from=latest",
        "/nonsense/at/all",
        "//",
    ):
        assert console.get(path).body == page.body
    for response in (
        page,
        console.get("/static/main.js"),
        console.get("/api/nothing"),
        console.get("/static/no"),
    ):
        assert {name: response.headers.get(name) for name in RESPONSE_HEADERS} == RESPONSE_HEADERS
        assert "server" not in response.headers
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert page.headers["content-type"].startswith("text/html")


def test_everything_that_the_page_names_is_served(console: RunningConsole) -> None:
    page = console.get("/").body.decode()
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=|https?://", page)
    named = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert len(named) > 15
    for path in named:
        response = console.get(path)
        assert response.status == 200 and response.body
        media_type = "text/css" if path.endswith(".css") else "text/javascript"
        assert response.headers["content-type"].startswith(media_type)


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static/..%5cserver.py",
     "/static/%2e%2e%2f%2e%2e%2fcli%2fconsole.py", "/static/..", "/static/.", "/static/", "/static/main.py",
     "/static/%00main.js", "/static/../static/main.js", "/static//etc/passwd", "/static/%2fetc%2fpasswd",
     f"/static/{'x' * 5000}.js"],
)  # fmt: skip
def test_no_other_file_is_served(console: RunningConsole, path: str) -> None:
    response = console.get(path)
    assert response.status == 404
    assert response.json.keys() == {"error", "hint"}


# requests -------------------------------------------------------------------------------------


def test_records_are_produced_and_browsed(broker: RunningBroker, changing: RunningConsole) -> None:
    broker.create("written", 0)
    at = changing.post(
        "/api/produce", topic="written", partition=0, key="k", value='{"n": 1}', key_format="text",
        value_format="json", headers=[{"key": "h", "value": "v"}],
    )  # fmt: skip
    assert (at.status, at.json["partition"], at.json["offset"]) == (200, 0, 0)
    found = changing.get("/api/messages?topic=written&from=earliest&value_format=json").json
    (record,) = found["records"]
    assert (record["key"], record["value"]) == ("k", '{"n":1}')
    assert record["headers"] == [{"key": "h", "value": "v", "cut": False}]
    assert found["ended"] is True
    posted = changing.post("/api/messages", topic="orders", **{"from": "earliest", "limit": 4})
    assert posted.status == 200 and len(posted.json["records"]) == 4
    rest = changing.post(
        "/api/messages", topic="orders", **{"from": "earliest", "limit": 100}, cursor=posted.json["next"]
    )
    assert len(rest.json["records"]) == 12


def test_actions_need_the_name_of_the_group(broker: RunningBroker, changing: RunningConsole) -> None:
    broker.commit("moved", "orders", p0=4)
    body = {"group": "moved", "topics": None, "to": "earliest"}
    plan = changing.post("/api/actions/reset-offsets/preview", **body).json["plan"]
    assert [(row["partition"], row["current"], row["new"]) for row in plan] == [("orders:0", 4, 0)]
    assert changing.post("/api/actions/reset-offsets", **body, confirm="other").status == 400
    assert broker.committed("moved") == {"orders-0": 4}
    assert changing.post("/api/actions/reset-offsets", **body, confirm="moved").status == 200
    assert broker.committed("moved") == {"orders-0": 0}
    with changing.view("groups") as stream:
        stream.until(has_group("moved"))
        assert changing.post("/api/actions/delete-group", group="moved", confirm="moved").status == 200
        stream.until(lambda state: "moved" not in state["groups"])


@pytest.mark.parametrize(
    "path",
    ["produce", "actions/reset-offsets", "actions/reset-offsets/preview", "actions/remove-members",
     "actions/delete-group", "actions/set-config"],
)  # fmt: skip
def test_changes_need_to_be_allowed(console: RunningConsole, path: str) -> None:
    response = console.post(f"/api/{path}", topic="orders", value="x", group="app", confirm="app")
    assert (response.status, response.json["hint"]) == (403, "Start the console with --allow-changes.")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (b"\xff\xfe", 400),
     (b" " * (2 * 1024 * 1024 + 1), 413), (b"[" * 100_000, 400),
      (b'{"topic": "orders", "limit": 1e400}', 400)],
)  # fmt: skip
def test_broken_bodies_are_refused(console: RunningConsole, body: bytes, status: int) -> None:
    response = console.request("POST", "/api/messages", body, **{HEADER: "1"})
    assert response.status == status and response.json["error"]


# outages --------------------------------------------------------------------------------------


def test_views_keep_their_state_while_the_broker_is_down(tmp_path: Path) -> None:
    with served_on(tmp_path) as served:
        port, address = port_of(served), served.address
        broker = RunningBroker(address)
        broker.create("orders", 3)
        broker.join("app", ["orders"], "one")
        with (
            running_console(address) as console,
            console.view("groups") as stream,
            console.view("group", group="app") as group,
        ):
            stream.until(lambda state: has_group("app")(state) and state["groups"]["app"]["last"])
            group.until(lambda state: state["rebalances"] and state["members"])
            known = group.state["rebalances"]
            kill(served)
            for each in (stream, group):
                each.until(lambda state: state["facts"]["error"])
                each.until(lambda state: state["facts"]["logs"]["state"] == "unavailable")
            assert "app" in stream.state["groups"] and group.state["members"]
            with served_on(tmp_path, port):
                for each in (stream, group):
                    each.until(is_live)
                assert known.keys() <= group.state["rebalances"].keys()


def test_a_console_starts_without_a_broker_and_finds_it(tmp_path: Path) -> None:
    with served_on(tmp_path) as served:
        port, address = port_of(served), served.address
    with running_console(address) as console, console.view("groups") as stream:
        stream.until(lambda state: state["facts"]["error"])
        assert stream.state["facts"]["logs"]["state"] == "unavailable"
        with served_on(tmp_path, port):
            stream.until(is_live)


def test_history_starts_again_with_a_new_cluster(tmp_path: Path) -> None:
    """On the same port, with another cluster id, and logs that are as long."""
    with served_on(tmp_path / "first") as served:
        port, address = port_of(served), served.address
        broker = RunningBroker(address)
        broker.create("orders", 3)
        broker.join("app", ["orders"], "one")
        with running_console(address) as console, console.view("groups") as stream:
            stream.until(lambda state: has_group("app")(state) and state["groups"]["app"]["last"])
            former = stream.state["facts"]["cluster_id"]
            kill(served)
            stream.until(lambda state: state["facts"]["logs"]["state"] == "unavailable")
            with served_on(tmp_path / "second", port):
                broker.create("orders", 3)
                broker.join("other", ["orders"], "two")
                stream.until(lambda state: has_group("other")(state) and state["groups"]["other"]["last"])
                assert stream.state["facts"]["cluster_id"] != former
                assert "app" not in stream.state["groups"]
                with console.view("group", group="app") as group:
                    group.until(is_live)
                    assert group.state["rebalances"] == {} and group.state["facts"]["exists"] is False


# the end --------------------------------------------------------------------------------------


@contextmanager
def console_process(address: str, *args: str) -> Iterator[tuple[subprocess.Popen[str], RunningConsole]]:
    """Run `konvene console` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "konvene",
        "console",
        "--port",
        "0",
        "--bootstrap-server",
        address,
        *args,
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("konvene console at http://"), process.communicate()
        yield process, RunningConsole(line.split()[-1])
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_open_streams_do_not_delay_the_end(broker: RunningBroker, number: signal.Signals) -> None:
    with console_process(broker.address) as (process, console), console.view("groups") as stream:
        stream.until(has_group("app"))
        process.send_signal(number)
        while stream.event() is not None:
            pass
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert errors == ""
        assert process.returncode in (0, 128 + number, -number)


def test_it_ends_with_its_parent_if_that_is_wanted(broker: RunningBroker) -> None:
    with console_process(broker.address, "--with-parent") as (process, console):
        assert console.get("/").status == 200
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, errors) == (0, "")


def test_the_page_of_a_broker_that_is_killed_leaves_no_process() -> None:
    command = [sys.executable, "-m", "konvene", "serve", "--ephemeral", "--port", "0", "--console-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("konvene console at "))
        console = RunningConsole(line.split()[-1])
        with console.view("groups") as stream:
            stream.until(is_live)
        (child,) = children(process.pid)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
    process.communicate(timeout=DEADLINE_S)  # The console has closed its output too.
    until(lambda: not is_running(child))


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    "arguments", [["console"], ["serve", "--ephemeral", "--port", "0", "--console-port", "0"]]
)
def test_missing_libraries_are_named(tmp_path: Path, arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "sys.modules['starlette'] = None\n"
        "from konvene.cli import main\n"
        f"sys.argv = ['konvene', *{arguments!r}]\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=DEADLINE_S,
        check=False, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "needs starlette and uvicorn" in done.stderr and "pip install 'konvene[console]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named(broker: RunningBroker, console: RunningConsole) -> None:
    command = [sys.executable, "-m", "konvene", "console", "--bootstrap-server", broker.address]
    done = subprocess.run(
        [*command, "--port", str(console.address[1])], capture_output=True, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"cannot listen on localhost:{console.address[1]}: Address already in use" in done.stderr
    assert "Choose another port with --port;" in done.stderr
