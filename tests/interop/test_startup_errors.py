"""What goes wrong at a start, and what an operator is told: one paragraph, exit code 1, nothing changed on disk."""

import json
import random
import re
import signal
import socket
import subprocess
import time
import urllib.request

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from servers import BINARY, Process, free_port, listens, wait_for
from wire import Connection


def listing(directory):
    return {str(p.relative_to(directory)): (p.is_dir(), 0 if p.is_dir() else p.stat().st_size)
            for p in sorted(directory.rglob("*"))}


def start_args(data, kafka=None, zookeeper=None, console=None, *more):
    return [BINARY, "start", "--data", str(data), "--kafka-port", str(kafka or free_port()),
            "--zookeeper-port", str(zookeeper or free_port()), "--console-port", str(console or free_port()), *more]


def refused(args):
    """Runs a start that must fail; returns its paragraph."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("gracchus: ") and "panicked" not in done.stderr, done.stderr
    assert "is ready" not in done.stdout
    return last


def properties(tmp_path, cluster, name="server.properties", **keys):
    """A server.properties for a broker of its own on the cluster's coordination server."""
    port = free_port()
    file = tmp_path / name
    values = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "zookeeper.connect": cluster.zookeeper,
              "log.dirs": str(tmp_path / "logs"), **{k.replace("_", "."): v for k, v in keys.items()}}
    file.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
    return file, port


def test_a_data_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    before = listing(tmp_path)
    said = refused(start_args(tmp_path / "file" / "data"))
    assert str(tmp_path / "file") in said
    assert listing(tmp_path) == before


@pytest.mark.parametrize("which", ["kafka", "zookeeper"])
def test_a_port_in_use(tmp_path, which):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        data = tmp_path / "data"
        said = refused(start_args(data, **{which: port}))
        assert str(port) in said and "use" in said
        assert not data.exists() or not [p for p in data.rglob("*") if p.is_file()], listing(tmp_path)


def test_a_second_process_on_the_same_data(own_cluster):
    server = own_cluster().start()
    wait_for(lambda: "is ready" in server.log_text(), "the server's own word")
    data = server.directory / "data"
    # what the first one writes meanwhile is not the second one's doing
    server.broker.send(signal.SIGSTOP)
    try:
        before = listing(data)
        said = refused(start_args(data))
        assert str(data) in said and re.search("another process|in use", said), said
        assert listing(data) == before
    finally:
        server.broker.send(signal.SIGCONT)
    assert AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60).brokers


def test_meta_properties_of_another_cluster(cluster, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text("#\nbroker.id=7\nversion=0\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    file, _ = properties(tmp_path, cluster)
    before = listing(logs)
    said = refused([BINARY, "broker", file])
    mine = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60).cluster_id
    assert "AAAAAAAAAAAAAAAAAAAAAA" in said and mine in said and str(logs) in said
    assert {k: v for k, v in listing(logs).items() if k != ".lock"} == before


def test_another_broker_id_than_the_stored_one(cluster, tmp_path):
    mine = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60).cluster_id
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text(f"#\nbroker.id=7\nversion=0\ncluster.id={mine}\n")
    file, _ = properties(tmp_path, cluster, broker_id=8)
    before = listing(logs)
    said = refused([BINARY, "broker", file])
    assert "broker.id=8" in said and "broker.id=7" in said and str(logs) in said
    assert {k: v for k, v in listing(logs).items() if k != ".lock"} == before


def test_the_id_of_a_broker_that_is_alive(cluster, tmp_path):
    file, _ = properties(tmp_path, cluster, broker_id=0)
    said = refused([BINARY, "broker", file])
    assert "broker 0 is alive" in said and str(cluster.kafka_port) in said


def test_an_unusable_key_is_named(cluster, tmp_path):
    file, _ = properties(tmp_path, cluster, num_io_threads="many")
    said = refused([BINARY, "broker", file])
    assert "num.io.threads" in said and "many" in said


def test_a_restart_at_once_after_kill_9(own_cluster):
    """The registration of the killed process still stands: the session it left is ended, not waited for."""
    server = own_cluster({"zookeeper.session.timeout.ms": "18000"}).start()
    server.kill()
    server.start()
    wait_for(lambda: "is ready" in server.log_text().split("coordination server on")[-1], "the broker")
    assert "that an earlier process of this broker left" in server.log_text()
    assert AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60).brokers


def test_sigterm_while_starting(tmp_path):
    """A broker that waits for its ZooKeeper stops cleanly."""
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\n"
                    f"zookeeper.connect=127.0.0.1:{free_port()}\nlog.dirs={tmp_path}/logs\n")
    p = Process([BINARY, "broker", str(file)], tmp_path / "log")
    wait_for(lambda: "waiting for ZooKeeper" in p.text() or "listener PLAINTEXT" in p.text(), "its first lines")
    assert p.stop(signal.SIGTERM) == 0
    assert "stopped while starting" in p.text() and "panicked" not in p.text()


def test_signals_in_a_burst_are_one(own_cluster):
    """`timeout` and some supervisors signal the process and then its group: that is no wish to leave at once."""
    server = own_cluster().start()
    wait_for(lambda: "gracchus is ready" in server.log_text(), "the server")
    for _ in range(3):
        server.broker.send(signal.SIGTERM)
    assert server.broker.stop(signal.SIGINT) == 0
    assert "has shut down" in server.broker.text() and "second signal" not in server.broker.text()


def test_a_second_signal_leaves_at_once(tmp_path):
    """Of a shutdown that cannot go on, since ZooKeeper does not answer."""
    zookeeper, port = free_port(), free_port()
    file, zoo = tmp_path / "server.properties", tmp_path / "zoo.cfg"
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect=127.0.0.1:{zookeeper}\n"
                    f"log.dirs={tmp_path}/logs\n")
    zoo.write_text(f"dataDir={tmp_path}/zookeeper\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n")
    server = Process([BINARY, "zookeeper", str(zoo)], tmp_path / "zookeeper.log")
    broker = Process([BINARY, "broker", str(file)], tmp_path / "broker.log")
    try:
        wait_for(lambda: "broker 1 is ready" in broker.text(), "the broker")
        server.send(signal.SIGSTOP)
        broker.send(signal.SIGTERM)
        wait_for(lambda: "shutting down broker 1" in broker.text(), "the shutdown")
        # those of the first second are one wish

        def gone():
            broker.send(signal.SIGTERM)
            return not broker.alive()
        wait_for(gone, "the end")
        assert "second signal: leaving at once" in broker.text() and "has shut down" not in broker.text()
        assert broker.stop() == 1
    finally:
        broker.send(signal.SIGKILL)
        server.send(signal.SIGCONT)
        server.stop()


def test_sigterm_at_any_moment_of_a_start(own_cluster):
    """Exit code 0 whenever it comes, and no start has anything to recover after it."""
    rng = random.Random(7)
    server = own_cluster().start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for f in admin.create_topics([NewTopic("many", 300, 1)]).values():
        f.result(60)
    wait_for(lambda: "is ready" in server.log_text(), "the server's own word")
    begun = time.monotonic()
    assert server.stop() == 0
    server.start()
    wait_for(lambda: server.log_text().count("gracchus is ready") == 2, "the second start")
    long = time.monotonic() - begun
    assert server.stop() == 0
    for _ in range(20):
        before = server.directory.joinpath("gracchus.log").stat().st_size
        server.start(wait=False)
        time.sleep(rng.uniform(0, long))    # the moment of the signal: what is tested, not a wait for anything
        code = server.stop()
        # before its first word the process is not there yet, and the signal ends it as any program
        assert code == 0 or code == -15 and server.directory.joinpath("gracchus.log").stat().st_size == before
    server.start()
    log = server.broker
    wait_for(lambda: "gracchus is ready" in log.text().split("coordination server on")[-1], "the last start")
    text = log.text()
    assert "recovered" not in text and "panicked" not in text and " ERROR " not in text, \
        [line for line in text.splitlines() if " ERROR " in line or "recovered" in line]
    assert "stopped while starting" in text, "not one came during a start"
    assert len(AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60).topics["many"].partitions) == 300


def test_clients_find_their_topics_in_the_first_answer_after_a_restart(own_cluster):
    """Neither the word "ready" nor an answer to a client comes before the controller has told of the topics."""
    server = own_cluster().start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for f in admin.create_topics([NewTopic(f"t{n}", 5, 1) for n in range(40)]).values():
        f.result(60)
    for turn in range(15):
        server.kill()
        server.start()
        # the port is open before the broker is ready: whoever asks then waits
        with Connection(server.kafka_port) as c:
            answer = c.call("Metadata", 4, Topics=[{"Name": "t39"}, {"Name": "t0"}], AllowAutoTopicCreation=False)
        assert [(t["ErrorCode"], len(t["Partitions"])) for t in answer["Topics"]] == [(0, 5), (0, 5)], turn


def test_progress_of_a_recovery_is_told(own_cluster):
    """After a kill: how many partitions and bytes, in the log, and in /health until it is done."""
    server = own_cluster().start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for f in admin.create_topics([NewTopic("big", 4, 1, config={"segment.bytes": "50000000"})]).values():
        f.result(60)
    p = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5})
    for n in range(20000):
        p.produce("big", b"x" * 1000)
        p.poll(0)
    assert p.flush(60) == 0
    server.kill()
    server.start()
    wait_for(lambda: server.log_text().count("gracchus is ready") == 2, "the server's own word")
    last = server.log_text().split("coordination server on")[-1]
    assert re.search(r"recovered [\d,]+/[\d,]+ partitions, \d+ MB/\d+ MB", last), last


def test_a_broker_waits_for_its_zookeeper(tmp_path):
    zookeeper = free_port()
    port = free_port()
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect=127.0.0.1:{zookeeper}\n"
                    f"log.dirs={tmp_path}/logs\nadvertised.listeners=PLAINTEXT://localhost:{port}\n")
    zoo = tmp_path / "zoo.cfg"
    zoo.write_text(f"dataDir={tmp_path}/zookeeper\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n")
    processes = [Process([BINARY, "broker", str(file)], tmp_path / "broker.log")]
    broker = processes[0]
    try:
        wait_for(lambda: re.search(rf"waiting for ZooKeeper at .*127.0.0.1:{zookeeper} \(127.0.0.1\): Connection refused", broker.text()),
                 "the line about the ZooKeeper it waits for")
        assert broker.alive()
        processes.append(Process([BINARY, "zookeeper", str(zoo)], tmp_path / "zookeeper.log"))
        wait_for(lambda: "broker 1 is ready" in broker.text(), "the broker")
        assert f"clients that come in here will be told localhost:{port}" in broker.text()
        assert AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=60).brokers
    finally:
        codes = [p.stop() for p in processes]
    assert codes == [0, 0]


def test_a_taken_console_port_is_a_warning(own_cluster):
    server = own_cluster()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server.console_port))
        taken.listen()
        server.start()
        assert re.search(rf"WARN.*\b{server.console_port}\b", server.log_text())
        assert listens(server.kafka_port)
        assert server.stop() == 0


@pytest.mark.parametrize("command, flag", [(["start"], "--config"), (["broker", "server.properties"], "--override")])
def test_an_assignment_without_a_value_is_named_with_its_flag(tmp_path, command, flag):
    (tmp_path / "server.properties").write_text("zookeeper.connect=127.0.0.1:1\n")
    done = subprocess.run([BINARY, *command, flag, "nonsense"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith(f"gracchus: {flag} nonsense: not of the form key=value"), done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["server.properties"]


def test_zookeeper_with_the_sample_configuration_and_the_prometheus_provider(tmp_path):
    """No warning about what a server alone has no use for; figures where ZooKeeper's provider would serve them."""
    port, metrics = free_port(), free_port()
    zoo = tmp_path / "zoo.cfg"
    zoo.write_text(f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={tmp_path}/zookeeper\nclientPort={port}\n"
                   "admin.enableServer=false\n"
                   "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n"
                   f"metricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort={metrics}\n")
    p = Process([BINARY, "zookeeper", str(zoo)], tmp_path / "log")
    try:
        wait_for(lambda: listens(port) and listens(metrics), "the server")

        def figures():
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=60) as answer:
                return answer.read().decode()
        # both ports are open a moment before there is something to tell
        wait_for(lambda: "znode_count" in figures(), "the figures")
    finally:
        assert p.stop() == 0
    warnings = [line for line in p.text().splitlines() if "WARN" in line and "may be gone after a restart" not in line]
    assert not warnings


def test_check_config_says_where_each_value_is_from_and_starts_nothing(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=127.0.0.1:1\n# a slip of the pen\nlog.retention.hour=1\nnum.partitions=2\nnum.partitions=3\n"
                    f"log.dirs={tmp_path}/logs\nssl.key.password=quite secret\n")
    done = subprocess.run([BINARY, "check-config", file, "--override", "broker.id=7"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"WARN num.partitions stands in {file} twice: line 5 replaces line 4",
        "WARN log.retention.hour was supplied but isn't a known config; did you mean log.retention.hours?",
        "WARN ssl.key.password is known and has no effect in this broker"]
    shown = dict(re.split(r"\s{2,}", line) for line in done.stdout.splitlines())
    assert shown["num.partitions=3"] == f"{file}:5"
    assert shown["log.retention.hour=1"] == f"{file}:3"
    assert shown["broker.id=7"] == "--override"
    assert shown["log.retention.hours=168"] == "default"
    assert shown["ssl.key.password=[hidden]"] == f"{file}:7"
    assert len(shown) > 300 and "quite secret" not in done.stdout + done.stderr
    document = json.loads(subprocess.run([BINARY, "check-config", file, "--given", "--format", "json"], capture_output=True, check=True,
                                         timeout=60).stdout)
    assert {"key": "num.partitions", "value": "3", "origin": f"{file}:5", "known": True, "honoured": True} in document["keys"]
    assert len(document["keys"]) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["server.properties"]
    file.write_text("zookeeper.connect=127.0.0.1:1\n\nnum.partitions=many\n")
    assert f"({file}, line 3)" in refused([BINARY, "check-config", file])
