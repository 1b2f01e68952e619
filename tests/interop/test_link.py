"""The binary under the names of Kafka's and ZooKeeper's scripts: what calls those runs unchanged."""

import os
import pathlib
import shutil
import subprocess

import pytest

from servers import BINARY, free_port, listens, wait_for


@pytest.fixture
def scripts(tmp_path):
    """A directory of links to a binary of its own, since kafka-server-stop.sh stops every broker of its binary."""
    binary = tmp_path / "gracchus"
    try:
        os.link(BINARY, binary)
    except OSError:
        shutil.copy(BINARY, binary)
    made = subprocess.run([binary, "link", tmp_path / "bin"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert str(tmp_path / "bin" / "kafka-topics.sh") in made.splitlines()

    def call(name, *args, **options):
        return subprocess.run([tmp_path / "bin" / name, *map(str, args)], capture_output=True, text=True, timeout=60, cwd=tmp_path,
                              **options)
    call.directory = tmp_path / "bin"
    call.binary = binary
    return call


def test_links_do_not_replace_what_is_none(tmp_path, scripts):
    again = subprocess.run([scripts.binary, "link", scripts.directory], capture_output=True, text=True, timeout=60)
    assert again.returncode == 0
    mine = scripts.directory / "zkCli.sh"
    mine.unlink()
    mine.write_text("mine")
    (scripts.directory / "kafka-topics.sh").unlink()
    refused = subprocess.run([scripts.binary, "link", scripts.directory], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and str(mine) in refused.stderr
    assert mine.read_text() == "mine" and not (scripts.directory / "kafka-topics.sh").exists()


def test_tools_by_their_scripts_names(scripts, cluster, topic):
    at = ["--bootstrap-server", cluster.bootstrap]
    assert scripts("kafka-topics.sh", *at, "--create", "--topic", topic).stdout == f"Created topic {topic}.\n"
    assert scripts("kafka-console-producer.sh", *at, "--topic", topic, input="one\ntwo\n").returncode == 0
    assert scripts("kafka-console-consumer.sh", *at, "--topic", topic, "--from-beginning", "--max-messages", 2).stdout == "one\ntwo\n"
    assert scripts("kafka-get-offsets.sh", *at, "--topic", topic).stdout == f"{topic}:0:2\n"
    assert scripts("zkCli.sh", "-server", cluster.zookeeper, "ls", f"/brokers/topics/{topic}").stdout.strip() == "[partitions]"
    assert scripts("zookeeper-shell.sh", cluster.zookeeper, "ls", f"/brokers/topics/{topic}").stdout.strip() == "[partitions]"


def test_servers_by_their_scripts(scripts, tmp_path):
    zk, kafka = free_port(), free_port()
    (tmp_path / "conf").mkdir()
    zoo = tmp_path / "conf" / "zoo.cfg"
    zoo.write_text(f"dataDir={tmp_path}/zookeeper\nclientPort={zk}\nclientPortAddress=127.0.0.1\n")
    properties = tmp_path / "server.properties"
    properties.write_text(f"zookeeper.connect=127.0.0.1:{zk}\nlog.dirs={tmp_path}/logs-of-kafka\noffsets.topic.replication.factor=1\n")
    config = ["--config", tmp_path / "conf"]

    down = scripts("zkServer.sh", *config, "status")
    assert down.returncode == 1
    assert down.stdout == (f"Client port found: {zk}. Client address: 127.0.0.1. Client SSL: false.\n"
                           "Error contacting service. It is probably not running.\n")
    assert down.stderr == f"Using config: {zoo}\n"
    assert scripts("zkServer.sh", *config, "start").stdout == "Starting zookeeper ... STARTED\n"
    wait_for(lambda: listens(zk), "the coordination server")
    pid = int((tmp_path / "zookeeper" / "zookeeper_server.pid").read_text())
    again = scripts("zkServer.sh", *config, "start")
    assert again.returncode == 1 and again.stdout == f"Starting zookeeper ... already running as process {pid}.\n"
    assert scripts("zkServer.sh", *config, "status").stdout.endswith("Mode: standalone\n")

    assert scripts("kafka-server-stop.sh").stdout == "No kafka server to stop\n"
    started = scripts("kafka-server-start.sh", "-daemon", properties, "--override", f"listeners=PLAINTEXT://127.0.0.1:{kafka}",
                      env={**os.environ, "LOG_DIR": str(tmp_path / "out")})
    assert started.returncode == 0, started.stderr
    out = pathlib.Path(tmp_path / "out" / "kafkaServer.out")
    wait_for(lambda: "is ready" in out.read_text(), "the broker")
    # of this binary only
    assert listens(kafka)
    assert scripts("kafka-server-stop.sh").returncode == 0
    wait_for(lambda: "has shut down" in out.read_text(), "the broker's end")

    assert scripts("zkServer.sh", *config, "stop").stdout == "Stopping zookeeper ... STOPPED\n"
    assert not listens(zk)
    assert scripts("zkServer.sh", *config, "stop").stdout.startswith("Stopping zookeeper ... no zookeeper to stop (could not find file ")
    usage = scripts("kafka-server-start.sh")
    assert usage.returncode == 1 and "USAGE: " in usage.stderr and "[-daemon] server.properties [--override" in usage.stderr
