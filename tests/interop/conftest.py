import os
import pathlib

import pytest

from brokers import Brokers
from servers import Cluster, wait_for

# Which program each file of tests calls; `cargo xtask test` says which are missing on this machine.
CALLS = {
    "test_kcat.py": {"kcat", "java", "mvn"},
    "test_loggers.py": {"java", "mvn"},
    "test_zk_sasl.py": {"java", "mvn"},
    "test_zk_tls.py": {"java", "mvn"},
    "test_zk_security.py": {"java", "mvn"},
    "test_java_tools.py": {"java", "mvn"},
    "test_own_tools.py": {"java", "mvn"},
    "test_java_clients.py": {"java", "javac", "mvn"},
    "test_zkcli.py": {"java", "mvn"},
    "test_znodes.py": {"java", "mvn"},
    "test_mixed_cluster.py": {"java", "mvn"},
    "test_ensemble.py": {"java", "mvn"},
    "test_rolling_takeover.py": {"java", "mvn"},
    "test_disk_formats.py": {"java", "mvn"},
    "test_jvm_swap.py": {"java", "mvn"},
    "test_move_log_dirs.py": {"java", "mvn"},
}


def pytest_ignore_collect(collection_path):
    missing = set(filter(None, os.environ.get("GRACCHUS_TEST_MISSING", "").split(",")))
    return True if CALLS.get(collection_path.name, set()) & missing else None


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """One server shared by the tests that only add topics and groups of their own."""
    c = Cluster(tmp_path_factory.mktemp("cluster")).start()
    if c.target == "gracchus":
        # its port opens earlier
        wait_for(lambda: "gracchus is ready" in c.log_text(), "the server's own word")
    yield c
    c.remove()


@pytest.fixture
def own_cluster(tmp_path):
    """Makes servers that the test may stop, kill and configure: own_cluster(config) -> Cluster, not yet started."""
    made = []

    def make(config=None, directory=None, **options):
        c = Cluster(directory or pathlib.Path(tmp_path) / f"c{len(made)}", config, **options)
        made.append(c)
        return c

    yield make
    for c in made:
        c.remove()


@pytest.fixture
def brokers(tmp_path):
    """Makes clusters of several brokers: brokers(kinds, config=...) -> Brokers, not yet started."""
    made = []

    def make(*args, **options):
        made.append(Brokers(pathlib.Path(tmp_path) / f"b{len(made)}", *args, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.remove()


@pytest.fixture
def topic(request):
    """A topic name that only this test uses."""
    return request.node.name.replace("[", "-").replace("]", "").replace("_", "-")[:200]
