"""Names, addresses and sizes: what a broker advertises, and how it reaches a ZooKeeper whose names are wrong or change."""

import json
import re
import subprocess
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from servers import BINARY, TARGET, Process, free_port, gracchus, listens, wait_for


@pytest.fixture
def processes():
    """Started by the test itself; ended with it, the last first."""
    started = []
    yield started
    for p in reversed(started):
        if p.alive():
            p.stop()


def zookeeper(tmp_path, processes, port, **keys):
    zoo = tmp_path / "zoo.cfg"
    keys = {"dataDir": tmp_path / "zookeeper", "clientPort": port, "clientPortAddress": "127.0.0.1", **keys}
    zoo.write_text("".join(f"{k}={v}\n" for k, v in keys.items()))
    processes.append(Process([BINARY, "zookeeper", str(zoo)], tmp_path / "zookeeper.log"))
    wait_for(lambda: listens(port), "the coordination server")
    return processes[-1]


def broker(tmp_path, processes, zookeeper, port, listeners, *flags, command=(), **keys):
    file = tmp_path / "server.properties"
    keys = {"listeners": listeners, "zookeeper.connect": zookeeper, "log.dirs": tmp_path / "logs", **keys}
    file.write_text("".join(f"{k}={v}\n" for k, v in keys.items()))
    processes.append(Process([*command, BINARY, "broker", str(file), *flags], tmp_path / f"broker-{port}.log"))
    return processes[-1]


@pytest.mark.parametrize("advertised, told, warned", [
    ("localhost", "localhost", r"accepts connections from other machines .* but tells its clients localhost:PORT, which is each client's own"),
    ("no.such.host.invalid", "no.such.host.invalid", r"advertises no.such.host.invalid:PORT, a name that does not resolve here"),
])
def test_what_clients_will_be_told_and_what_is_wrong_with_it(tmp_path, processes, advertised, told, warned):
    zk, port = free_port(), free_port()
    zookeeper(tmp_path, processes, zk)
    p = broker(tmp_path, processes, f"127.0.0.1:{zk}", port, f"PLAINTEXT://0.0.0.0:{port}",
               **{"advertised.listeners": f"PLAINTEXT://{advertised}:{port}"})
    wait_for(lambda: "registered as broker" in p.text(), "the registration")
    assert f"listener PLAINTEXT on 0.0.0.0:{port}: clients that come in here will be told {told}:{port}" in p.text()
    warning = next(line for line in p.text().splitlines() if re.search(warned.replace("PORT", str(port)), line))
    assert f"set advertised.listeners=PLAINTEXT://<the name or address that clients use>:{port}" in warning
    # a broker whose own address is wrong still stops at once
    assert p.stop() == 0


def test_an_address_that_nobody_can_reach_is_not_advertised(tmp_path, processes):
    port = free_port()
    p = broker(tmp_path, processes, f"127.0.0.1:{free_port()}", port, f"PLAINTEXT://0.0.0.0:{port}",
               **{"advertised.listeners": f"PLAINTEXT://0.0.0.0:{port}"})
    assert p.popen.wait(60) == 1
    assert "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0" in p.text()


@pytest.mark.skipif(TARGET == "apache", reason="asks for gracchus' own log lines")
def test_a_listener_on_loopback_needs_no_warning(cluster):
    text = cluster.log_text()
    assert "will be told 127.0.0.1" in text and "set advertised.listeners" not in text


def test_data_that_will_vanish_is_warned_about(tmp_path, processes):
    """/tmp and the like, for broker and coordination server."""
    zk, port = free_port(), free_port()
    z = zookeeper(tmp_path, processes, zk)
    p = broker(tmp_path, processes, f"127.0.0.1:{zk}", port, f"PLAINTEXT://127.0.0.1:{port}")
    wait_for(lambda: "registered as broker" in p.text(), "the registration")
    if str(tmp_path).startswith("/tmp/"):
        for text, directory in [(p.text(), "logs"), (z.text(), "zookeeper")]:
            assert re.search(rf"data directory {tmp_path}/{directory} is (under /tmp|in memory|in a container)", text), text


def test_one_name_that_does_not_resolve_is_left_out(tmp_path, processes):
    """Told once, by broker and shell, while the other server is used."""
    zk, port = free_port(), free_port()
    zookeeper(tmp_path, processes, zk)
    connect = f"no.such.zookeeper.invalid:2181,127.0.0.1:{zk}"
    p = broker(tmp_path, processes, connect, port, f"PLAINTEXT://127.0.0.1:{port}")
    wait_for(lambda: "is ready" in p.text(), "the broker")
    assert len(re.findall(r"cannot resolve ZooKeeper server no.such.zookeeper.invalid", p.text())) == 1
    assert gracchus("zk", "-server", connect, "get", "/cluster/id").stdout.startswith('{"version":"1","id":')


def own_hosts(hosts):
    """Runs a command that sees this file as /etc/hosts."""
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(hosts)]


def test_a_name_that_moves_is_resolved_again(tmp_path, processes):
    """The broker waits at the old address; as soon as the name says another one, it is there."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.0.99 moving.zookeeper.invalid\n")
    if subprocess.run([*own_hosts(hosts), "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody have an /etc/hosts of his own")
    zk, port, http = free_port(), free_port(), free_port()
    zookeeper(tmp_path, processes, zk)
    p = broker(tmp_path, processes, f"moving.zookeeper.invalid:{zk}", port, f"PLAINTEXT://127.0.0.1:{port}", "--http-port", str(http),
               command=own_hosts(hosts))
    wait_for(lambda: f"moving.zookeeper.invalid:{zk} (127.0.0.99): Connection refused" in p.text(), "the old address")

    def health(path="/health"):
        with urllib.request.urlopen(f"http://127.0.0.1:{http}{path}", timeout=60) as answer:
            return json.load(answer)
    said = health()
    assert said["live"] and not said["ready"] and "127.0.0.99" in said["parts"][0]["reason"]
    # in place, since the broker sees this very file
    hosts.write_text("127.0.0.1 localhost\n127.0.0.1 moving.zookeeper.invalid\n")
    wait_for(lambda: "is ready" in p.text(), "the broker")
    assert health()["ready"]
    # and an established session that breaks goes by the name, too
    first = processes.pop(0)
    assert first.stop() == 0
    wait_for(lambda: "the connection to ZooKeeper at" in p.text(), "the broken connection")
    hosts.write_text("127.0.0.1 localhost\n127.0.0.2 moving.zookeeper.invalid\n")
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}/zookeeper\nclientPort={zk}\nclientPortAddress=127.0.0.2\n")
    processes.append(Process([BINARY, "zookeeper", str(tmp_path / "zoo.cfg")], tmp_path / "zookeeper.log"))
    wait_for(lambda: "connected to ZooKeeper again" in p.text(), "the same session at the new address")
    assert AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=60).brokers


def test_an_answer_may_be_larger_than_a_request(cluster, topic):
    """jute.maxbuffer (1 MiB here) is for what clients send: a parent with too many children can still be listed and emptied."""
    parent = f"/{topic}"
    zk = KazooClient(hosts=cluster.zookeeper)
    zk.start(timeout=60)
    zk.create(parent)
    wanted = set()
    for part in range(30):
        t = zk.transaction()
        for n in range(400):
            name = f"{'n' * 120}-{part}-{n}"
            t.create(f"{parent}/{name}")
            wanted.add(name)
        assert not any(isinstance(r, Exception) for r in t.commit())
    assert sum(map(len, wanted)) > 1 << 20
    assert set(zk.get_children(parent)) == wanted
    zk.stop()
    zk.close()
    listed = gracchus("zk", "-server", cluster.zookeeper, "ls", parent).stdout
    assert set(listed.strip()[1:-1].split(", ")) == wanted
    gracchus("zk", "-server", cluster.zookeeper, "deleteall", parent)
    assert topic not in gracchus("zk", "-server", cluster.zookeeper, "ls", "/").stdout
