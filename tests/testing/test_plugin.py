"""The pytest plugin: fixtures, the marker, and the report of a failed test."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester):  # type: ignore[no-untyped-def]
    """Return a function that runs a file of tests in a process of its own and returns the result."""

    def do(text: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", *args, timeout=60)

    return do


def test_fixture_has_settings_and_topics_of_its_markers(run) -> None:  # type: ignore[no-untyped-def]
    """Each test gets a broker of its own; the markers of module and test are merged."""
    result = run("""
        import pytest

        pytestmark = pytest.mark.konvene(settings={"num.partitions": 7}, topics={"letters": 1})
        seen = []

        @pytest.mark.konvene(topics={"orders": 6})
        def test_marked(konvene):
            seen.append(konvene.port)
            assert konvene.topics() == {"letters": 1, "orders": 6}
            assert konvene.with_broker(lambda broker: broker.settings.config["num.partitions"]) == 7
            konvene.produce("notes", ["created by itself"])
            assert konvene.topics()["notes"] == 7

        def test_another(konvene):
            assert konvene.topics() == {"letters": 1}
    """)
    result.assert_outcomes(passed=2)


def test_shared_broker_is_cleaned_between_tests(run) -> None:  # type: ignore[no-untyped-def]
    """All tests of the session use one broker, without the topics and faults of earlier tests."""
    result = run("""
        import pytest

        ports = set()

        @pytest.mark.parametrize("n", range(3))
        @pytest.mark.konvene(topics={"orders": 2})
        def test_shared(konvene_shared, konvene_session, n):
            ports.add(konvene_shared.port)
            assert konvene_shared is konvene_session
            assert len(ports) == 1
            assert konvene_shared.topics() == {"orders": 2}
            konvene_shared.create_topic("more")
            konvene_shared.faults.lose_request("Heartbeat")
            konvene_shared.stop()
    """)
    result.assert_outcomes(passed=3)


def test_module_broker_has_the_settings_of_its_module(run) -> None:  # type: ignore[no-untyped-def]
    """All tests of the module use it, it keeps what they create, and failed tests report its log."""
    result = run("""
        import pytest

        pytestmark = pytest.mark.konvene(settings={"num.partitions": 7}, topics={"letters": 1}, folder=True)
        ports = set()

        @pytest.fixture(scope="module")
        def orders(konvene_module):
            konvene_module.create_topic("orders", partitions=2)
            return konvene_module.produce("orders", ["a"])

        def test_one(konvene_module, orders):
            ports.add(konvene_module.port)
            assert konvene_module.topics() == {"letters": 1, "orders": 2}
            assert konvene_module.with_broker(lambda broker: broker.settings.config["num.partitions"]) == 7
            konvene_module.create_topic("more")

        def test_two(konvene_module, orders, tmp_path_factory):
            assert ports == {konvene_module.port}
            assert set(konvene_module.topics()) == {"letters", "orders", "more"}
            assert list(tmp_path_factory.getbasetemp().glob("konvene*/orders-0/*.log"))

        @pytest.mark.konvene(topics={"own": 1})
        def test_other_broker(konvene, konvene_module):
            assert konvene.topics() == {"letters": 1, "own": 1}
            assert konvene.port != konvene_module.port

        def test_failing(konvene_module):
            konvene_module.faults.run("the coordinator of group readers loads for 1 ms")
            assert False

        @pytest.mark.konvene(topics={"own": 1})
        def test_rejected(konvene_module):
            pass
    """)
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*konvene faults*", "*the coordinator of group readers loads for 1 ms*"])
    result.stdout.fnmatch_lines(["*::test_rejected: konvene_module takes the marker of the module*"])


def test_factory_starts_brokers_for_tests_and_fixtures(run) -> None:  # type: ignore[no-untyped-def]
    """They stop at the end of their block, when they are closed, or at the end of the session."""
    result = run("""
        import socket

        import pytest

        open_brokers = []

        @pytest.fixture(scope="class")
        def source(konvene_factory):
            return konvene_factory({"num.partitions": 3}, {"orders": 2})

        class TestMirror:
            def test_two(self, source, konvene_factory):
                with konvene_factory(folder=True) as target:
                    assert target.port != source.port
                    target.produce("orders", ["a"])
                assert not target.running
                with konvene_factory(topics={"letters": 1}) as target:
                    assert target.topics() == {"letters": 1}

            def test_again(self, source, konvene_factory, tmp_path):
                open_brokers.append(source)
                assert source.running and source.topics() == {"orders": 2}
                closed = konvene_factory(folder=tmp_path / "data")
                closed.close()
                assert (tmp_path / "data" / "meta.properties").exists()

        @pytest.fixture(scope="session", autouse=True)
        def check(request):
            yield
            # The factory was set up later, so that its brokers are stopped already.
            assert [broker.running for broker in open_brokers] == [False]
    """)
    result.assert_outcomes(passed=2)


def test_failed_test_reports_rebalances_faults_and_log(run) -> None:  # type: ignore[no-untyped-def]
    """The report of a failed test has these sections; that of a passed test has none."""
    text = """
        import pytest
        from kafka import KafkaConsumer

        @pytest.mark.konvene(topics={"orders": 1})
        def test_it(konvene):
            consumer = KafkaConsumer(
                "orders", bootstrap_servers=konvene.bootstrap, client_id="ann", group_id="readers",
            )
            konvene.faults.delay("JoinGroup", ms=1)
            for _ in range(100):
                consumer.poll(timeout_ms=200)
                if konvene.group("readers").state == "Stable":
                    break
            consumer.close()
            konvene.faults.run("the coordinator of group readers loads for 1 ms")
            konvene.wait_group("readers", lambda group: group.state == "Empty")
            assert EXPECTED
    """
    result = run(text.replace("EXPECTED", "False"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "*konvene rebalances*",
        "group readers: generation 1 is Stable with 1 member*member-joined: ann-*",
        "*konvene faults*",
        "delay the next JoinGroup response by 1 ms: JoinGroup of client ann",
        "*konvene log*",
        "*konvene.coordinator: __consumer_offsets-*",
    ])  # fmt: skip
    result = run(text.replace("EXPECTED", "True"))
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*konvene rebalances*")


@pytest.mark.parametrize(
    ("marker", "fixture", "message"),
    [
        ("konvene(setings={})", "konvene", "unexpected 'setings'; the marker is konvene(*"),
        ("konvene('orders')", "konvene", "unexpected 'orders'; the marker is konvene(*"),
        ("konvene(settings={'num.partitions': 2})", "konvene_shared", "konvene_shared takes no settings"),
        (
            "konvene(settings={'num.partitons': 2})",
            "konvene",
            "test_it: marker konvene(settings=...): Unknown broker config name: num.partitons (did you mean "
            "num.partitions?)",
        ),
        (
            "konvene(settings={'num.partitions': 'x'})",
            "virtual_konvene",
            "marker konvene(settings=...): Invalid value x for configuration num.partitions: Not a number*",
        ),
    ],
)  # fmt: skip
def test_invalid_marker_is_an_error(run, marker: str, fixture: str, message: str) -> None:  # type: ignore[no-untyped-def]
    """The test errors at setup with one line, without a traceback."""
    result = run(f"""
        import pytest

        @pytest.mark.{marker}
        def test_it({fixture}):
            pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*"])
    result.stdout.no_fnmatch_line("*During handling*")
    result.stdout.no_fnmatch_line(">*")


def test_markers_settings_are_checked_with_the_defaults_of_a_test_broker(run) -> None:  # type: ignore[no-untyped-def]
    """Its lower limits are shorter than Kafka's."""
    result = run("""
        import pytest

        @pytest.mark.konvene(settings={"group.share.record.lock.duration.ms": 2000})
        def test_locks(konvene):
            pass

        @pytest.mark.konvene(settings={"group.max.session.timeout.ms": 3000})
        def test_sessions(virtual_konvene):
            pass
    """)
    result.assert_outcomes(passed=2)


def test_shared_broker_keeps_topics_and_groups_of_wider_fixtures(run) -> None:  # type: ignore[no-untyped-def]
    """Also if a test creates no topic of its own."""
    result = run("""
        import pytest

        @pytest.fixture(scope="module")
        def orders(konvene_session):
            konvene_session.create_topic("orders")
            konvene_session.produce("orders", ["a"])
            return "orders"

        def test_wider(konvene_session, orders):
            assert konvene_session.topics() == {"orders": 1}

        def test_own(konvene_shared):
            konvene_shared.create_topic("more")

        def test_none(konvene_shared):
            assert "more" not in konvene_shared.topics()

        def test_kept(konvene_session, orders):
            assert konvene_session.topics() == {"orders": 1}
            assert [r.value for r in konvene_session.records("orders")] == [b"a"]
    """)
    result.assert_outcomes(passed=4)


def test_shared_broker_without_topics_is_cleaned(run) -> None:  # type: ignore[no-untyped-def]
    """There is nothing to delete."""
    result = run("""
        def test_it(konvene_shared):
            pass
    """)
    result.assert_outcomes(passed=1)


def test_plugin_imports_nothing_without_a_broker(run) -> None:  # type: ignore[no-untyped-def]
    """Test runs that use no broker do not load konvene."""
    result = run("""
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("konvene")}
            assert loaded <= {"konvene", "konvene.testing", "konvene.testing.plugin"}
    """)
    result.assert_outcomes(passed=1)


def test_assertions_of_konvene_are_not_rewritten(run) -> None:  # type: ignore[no-untyped-def]
    """pytest rewrites all modules of a distribution with a plugin; the plugin prevents that for konvene."""
    result = run("""
        import importlib.machinery
        import sys

        def test_it(konvene):
            plain = importlib.machinery.SourceFileLoader
            ours = {name: module for name, module in sys.modules.items() if name.startswith("konvene.")}
            rewritten = {name for name, module in ours.items() if type(module.__loader__) is not plain}
            assert rewritten <= {"konvene.testing", "konvene.testing.plugin"}
            assert len(ours) > 50
    """)
    result.assert_outcomes(passed=1)
