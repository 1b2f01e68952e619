"""Starts the servers under test: gracchus, or Apache's own as the reference, on free loopback ports.

A test asks for a `Cluster` (one coordination server and one broker). `GRACCHUS_TEST_TARGET=apache` runs the same tests
against Apache Kafka 3.9.2 on Apache ZooKeeper 3.9.5, which proves that a test asks for what the real system does.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from wire import Connection

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".test-tools"
TARGET = os.environ.get("GRACCHUS_TEST_TARGET", "gracchus")
BINARY = os.environ.get("GRACCHUS_BINARY", str(ROOT / "target" / "release" / "gracchus"))
START_TIMEOUT_S = 120


_handed_out = set()


def free_port():
    """A loopback port that nothing listens on now and that this run has not handed out before.

    Taken from below the kernel's ephemeral range, so that no client's outgoing connection lands on it meanwhile.
    """
    for port in range(20000 + os.getpid() % 10000, 32000):
        if port in _handed_out:
            continue
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise RuntimeError("no free port")


def wait_for(condition, what, timeout_s=START_TIMEOUT_S):
    """Polls until `condition()` is true (its value is returned); a generous limit ends a hopeless wait."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"gave up waiting for {what}")
        time.sleep(0.02)


def listens(port):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def knows_controller(port):
    """Whether this broker's metadata name a controller. A JVM broker listens, and registers, some milliseconds before they do; a
    librdkafka admin client that asks in between is told of no controller and does not ask again for longer than it waits."""
    try:
        with Connection(port) as connection:
            return connection.call("Metadata", 1, Topics=[])["ControllerId"] >= 0
    except OSError:
        return False


class Process:
    """A server process whose output goes to a file."""

    def __init__(self, args, log, env=None, cwd=None):
        self.log = pathlib.Path(log)
        self.out = open(self.log, "ab")
        self.popen = subprocess.Popen(
            args, stdout=self.out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=cwd,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self):
        return self.popen.pid

    def text(self):
        return self.log.read_text(errors="replace")

    def alive(self):
        return self.popen.poll() is None

    def send(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def stop(self, number=signal.SIGTERM, timeout_s=60):
        """Sends the signal and waits; returns the exit code."""
        self.send(number)
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"{self.popen.args[0]} did not stop; its log ends:\n{self.text()[-3000:]}")
        finally:
            self.out.close()

    def kill(self):
        self.stop(signal.SIGKILL)


def jars(name):
    return str(TOOLS / "jars" / name) + "/*"


def java(jar_set, main, *args, classpath=(), properties=(), heap="512m"):
    cp = os.pathsep.join([*map(str, classpath), jars(jar_set)])
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true",
            *[f"-D{p}" for p in properties], "-cp", cp, main, *map(str, args)]


LOG4J = """log4j.rootLogger=%s, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=%s
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%%d] %%p %%m (%%c)%%n
"""


class Cluster:
    """One coordination server and one broker with their data under `directory`."""

    def __init__(self, directory, config=None, target=TARGET, kafka_port=None, zookeeper_port=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.target = target
        self.kafka_port = kafka_port or free_port()
        self.zookeeper_port = zookeeper_port or free_port()
        self.console_port = free_port()
        self.config = {"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0", **(config or {})}
        self.processes = []

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def zookeeper(self):
        return f"127.0.0.1:{self.zookeeper_port}"

    @property
    def log_dir(self):
        """Where the broker keeps its partitions."""
        if self.target == "apache":
            return self.directory / "kafka"
        return next(p.parent for p in self.directory.rglob("meta.properties"))

    def start(self, wait=True):
        if self.target == "apache":
            self._start_apache()
        else:
            args = [BINARY, "start", "--data", str(self.directory / "data"), "--kafka-port", str(self.kafka_port),
                    "--zookeeper-port", str(self.zookeeper_port), "--console-port", str(self.console_port)]
            for key, value in self.config.items():
                args += ["--config", f"{key}={value}"]
            self.processes = [Process(args, self.directory / "gracchus.log")]
        if wait:
            self.wait_ready()
        return self

    def _start_apache(self):
        log4j = self.directory / "log4j.properties"
        log4j.write_text(LOG4J % ("INFO", "System.out"))
        zoo = self.directory / "zoo.cfg"
        zoo.write_text(f"tickTime=2000\ndataDir={self.directory}/zookeeper\nclientPort={self.zookeeper_port}\n"
                       "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n")
        server = self.directory / "server.properties"
        server.write_text("".join(f"{k}={v}\n" for k, v in {
            "broker.id": "0", "listeners": f"PLAINTEXT://127.0.0.1:{self.kafka_port}",
            "zookeeper.connect": self.zookeeper, "log.dirs": f"{self.directory}/kafka",
            "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1", "zookeeper.session.timeout.ms": "6000", **self.config}.items()))
        zk = Process(java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", zoo),
                     self.directory / "zookeeper.log")
        self.processes = [zk]
        wait_for(lambda: listens(self.zookeeper_port), "ZooKeeper")
        self.processes.append(Process(java("kafka39", "kafka.Kafka", server, heap="1g",
                                           properties=[f"log4j.configuration=file:{log4j}"]),
                                      self.directory / "kafka.log"))

    def wait_ready(self):
        def ready():
            for p in self.processes:
                if not p.alive():
                    raise AssertionError(f"the server ended at start; its log ends:\n{p.text()[-3000:]}")
            return knows_controller(self.kafka_port) if self.target == "apache" else listens(self.kafka_port)
        wait_for(ready, "the broker")

    @property
    def broker(self):
        return self.processes[-1]

    def log_text(self):
        return "\n".join(p.text() for p in self.processes)

    def stop(self):
        """A controlled shutdown; the broker first. Returns the broker's exit code."""
        codes = [p.stop() for p in reversed(self.processes)]
        self.processes = []
        return codes[0] if codes else None

    def kill(self):
        """kill -9 of everything at once."""
        for p in self.processes:
            p.send(signal.SIGKILL)
        for p in self.processes:
            p.kill()
        self.processes = []

    def remove(self):
        for p in reversed(self.processes):
            if p.alive():
                p.kill()
        self.processes = []
        shutil.rmtree(self.directory, ignore_errors=True)


def run(args, input=None, timeout_s=120, check=True, env=None):
    """Runs a client to its end and returns the completed process, its output as text."""
    done = subprocess.run([str(a) for a in args], input=input, capture_output=True, text=True, timeout=timeout_s,
                          env={**os.environ, **(env or {})})
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, args))}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


TOOL_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
}


def kafka_tool(name, *args, **options):
    """One of the Java tools of Kafka 3.9.2, as its .sh script would run it."""
    log4j = TOOLS / "tools-log4j.properties"
    if not log4j.exists():
        log4j.write_text(LOG4J % ("WARN", "System.err"))
    return run(java("kafka39", TOOL_CLASSES[name], *args, properties=[f"log4j.configuration=file:{log4j}"]), **options)


def gracchus(*args, **options):
    """A command of the binary under test."""
    return run([BINARY, *args], **options)
