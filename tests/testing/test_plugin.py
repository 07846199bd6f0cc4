"""The plugin as pytest has it: fixtures, the marker, what a failing test reports."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester):  # type: ignore[no-untyped-def]
    """Run a file of tests in a process of its own; the result."""

    def do(text: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", *args, timeout=60)

    return do


def test_a_broker_is_a_fixture(run) -> None:  # type: ignore[no-untyped-def]
    """With nothing but the name: a broker for the test alone, with the settings and topics of its markers."""
    result = run("""
        import pytest

        pytestmark = pytest.mark.konvene(settings={"num.partitions": 7}, topics={"letters": 1})
        seen = []

        @pytest.mark.konvene(topics={"orders": 6})
        def test_marked(konvene):
            seen.append(konvene.port)
            assert konvene.topics() == {"letters": 1, "orders": 6}
            assert konvene.inside(lambda broker: broker.settings.config["num.partitions"]) == 7
            konvene.produce("notes", ["created by itself"])
            assert konvene.topics()["notes"] == 7

        def test_another(konvene):
            assert konvene.topics() == {"letters": 1}
    """)
    result.assert_outcomes(passed=2)


def test_a_shared_broker_is_emptied(run) -> None:  # type: ignore[no-untyped-def]
    """One for the session; a test finds nothing of the one before."""
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


def test_a_failing_test_tells_what_the_broker_did(run) -> None:  # type: ignore[no-untyped-def]
    """Its rebalances, the faults that were done, its log. A passing one tells nothing."""
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
    ("marker", "fixture", "why"),
    [
        ("konvene(setings={})", "konvene", "the marker is konvene(*not 'setings'"),
        ("konvene('orders')", "konvene", "the marker is konvene(*not 'orders'"),
        ("konvene(settings={'num.partitions': 2})", "konvene_shared", "a shared broker has its settings"),
        ("konvene(settings={'num.partition': 2})", "konvene", "num.partition*"),
    ],
)  # fmt: skip
def test_a_mistaken_marker_is_told(run, marker: str, fixture: str, why: str) -> None:  # type: ignore[no-untyped-def]
    """The test is in error, with what it should have said."""
    result = run(f"""
        import pytest

        @pytest.mark.{marker}
        def test_it({fixture}):
            pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{why}*"])


def test_nothing_is_imported_for_tests_without_a_broker(run) -> None:  # type: ignore[no-untyped-def]
    """The plugin is there in every run of pytest, and weighs nothing."""
    result = run("""
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("konvene")}
            assert loaded <= {"konvene", "konvene.testing", "konvene.testing.plugin"}
    """)
    result.assert_outcomes(passed=1)


def test_the_brokers_own_assertions_are_left_alone(run) -> None:  # type: ignore[no-untyped-def]
    """pytest would rewrite every module of a distribution that has a plugin; ours are loaded as anywhere."""
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
