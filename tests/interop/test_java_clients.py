"""Java's kafka-clients of 3.9 and 4.x; the scenarios are in tests/jvm/src/ClientScenarios.java."""

import subprocess

import pytest

from servers import ROOT, TOOLS, java, jars, run


@pytest.fixture(scope="session")
def classes():
    """The scenarios, compiled against the 3.9 clients."""
    out = TOOLS / "classes"
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run(["javac", "-d", str(out), "-cp", jars("kafka39"), str(ROOT / "tests/jvm/src/ClientScenarios.java")], check=True)
    return out


@pytest.fixture(params=["kafka39", "clients4"])
def scenario(request, cluster, classes, topic):
    topic = topic.replace(".", "-")

    def call(name, *args):
        done = run(java(request.param, "ClientScenarios", cluster.bootstrap, name, topic, *args, classpath=[classes]), timeout_s=180)
        assert done.stdout.splitlines()[-1] == "ok"
    return call


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_idempotent_producer(scenario, codec):
    scenario("idempotent", codec)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_group(scenario, assignor):
    scenario("assignor", assignor)


def test_static_members(scenario):
    scenario("static")


def test_admin(scenario):
    scenario("admin")


def test_timestamp_types(scenario):
    scenario("timestamps")


def test_offset_lookups(scenario):
    scenario("lookups")
