"""A cluster of several brokers, of gracchus, of Apache Kafka 3.9.2 or of both, on one coordination server of either kind."""

import json
import pathlib
import signal
import socket
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from servers import BINARY, LOG4J, TARGET, Process, free_port, java, knows_controller, listens, wait_for


class Proxy:
    """Passes connections on to a port until it is cut; healed, it takes new ones."""

    def __init__(self, target):
        self.target, self.port, self.is_cut = target, free_port(), False
        self.open = set()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = None if self.is_cut else socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            self.open |= {client, server}
            if self.is_cut:  # meanwhile
                self.cut()
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            self.open.discard(s)
            try:
                s.shutdown(socket.SHUT_RDWR)  # a close alone is not seen while the other thread reads
            except OSError:
                pass
            s.close()

    def cut(self):
        self.is_cut = True
        for s in list(self.open):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def heal(self):
        self.is_cut = False

    def remove(self):
        self.listener.close()
        self.cut()


class Broker:
    """One broker; its data stay when it is stopped or killed."""

    def __init__(self, brokers, number, kind):
        self.brokers, self.number, self.kind = brokers, number, kind
        self.port = free_port()
        self.directory = brokers.directory / f"broker-{number}"
        self.directory.mkdir(parents=True)
        self.log_dirs = [self.directory / "logs"] + [self.directory / f"logs-{n}" for n in range(1, brokers.log_dirs)]
        self.process = self.link = None
        if brokers.linked:
            self.inner_port = free_port()
            self.link = Proxy(self.inner_port)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        config = {"broker.id": self.number, "listeners": f"PLAINTEXT://{self.address}",
                  "zookeeper.connect": self.brokers.zookeeper, "log.dirs": ",".join(map(str, self.log_dirs)),
                  "zookeeper.session.timeout.ms": 6000, "offsets.topic.num.partitions": 5,
                  "offsets.topic.replication.factor": 3, "min.insync.replicas": 2,
                  "group.initial.rebalance.delay.ms": 0, "controlled.shutdown.max.retries": 2,
                  "controlled.shutdown.retry.backoff.ms": 500, "default.replication.factor": 3,
                  **self.brokers.config}
        if self.link:
            config |= {"listeners": f"PLAINTEXT://{self.address},INNER://127.0.0.1:{self.inner_port}",
                       "advertised.listeners": f"PLAINTEXT://{self.address},INNER://127.0.0.1:{self.link.port}",
                       "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
                       "inter.broker.listener.name": "INNER"}
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in config.items()))
        log = self.directory / "broker.log"
        if self.kind == "apache":
            log4j = self.directory / "log4j.properties"
            log4j.write_text(LOG4J % ("INFO", "System.out"))
            args = java("kafka39", "kafka.Kafka", properties, heap="512m", properties=[f"log4j.configuration=file:{log4j}"])
        else:
            args = [BINARY, "broker", str(properties)]
        self.process = Process(args, log)
        return self

    def stop(self):
        code = self.process.stop()
        self.process = None
        return code

    def kill(self):
        self.process.send(signal.SIGKILL)
        self.process.kill()
        self.process = None

    def alive(self):
        return self.process is not None and self.process.alive()

    def text(self):
        return (self.directory / "broker.log").read_text(errors="replace")


class Ensemble:
    """Three Apache ZooKeeper 3.9.5 servers, numbered from 1; their data stay when they are killed."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.ports = {n: (free_port(), free_port(), free_port()) for n in (1, 2, 3)}
        self.processes = {}

    @property
    def addresses(self):
        return ",".join(f"127.0.0.1:{client}" for client, _, _ in self.ports.values())

    def start(self, *numbers):
        for number in numbers or self.ports:
            home = self.directory / f"zookeeper-{number}"
            home.mkdir(parents=True, exist_ok=True)
            (home / "myid").write_text(str(number))
            peers = "".join(f"server.{n}=127.0.0.1:{quorum}:{election}\n" for n, (_, quorum, election) in self.ports.items())
            (home / "zoo.cfg").write_text(
                f"tickTime=1000\ninitLimit=20\nsyncLimit=5\ndataDir={home}\nclientPort={self.ports[number][0]}\n"
                f"clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n{peers}")
            args = java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", home / "zoo.cfg", heap="256m")
            self.processes[number] = Process(args, home / "zookeeper.log")
        return self

    def role(self, number):
        """leader or follower, None while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.ports[number][0]), 2) as s:
                s.sendall(b"srvr")
                text = s.makefile().read()
        except OSError:
            return None
        return next((line.split()[1] for line in text.splitlines() if line.startswith("Mode:")), None)

    def wait(self, *numbers):
        """Until these are an ensemble with a leader."""
        def roles():
            return sorted(filter(None, map(self.role, numbers)))
        wait_for(lambda: roles() == ["follower"] * (len(numbers) - 1) + ["leader"], "the ensemble to have a leader")

    def leader(self):
        return next((n for n in self.processes if self.role(n) == "leader"), None)

    def kill(self, *numbers):
        for number in numbers or list(self.processes):
            self.processes.pop(number).kill()


class Brokers:
    """Brokers 1, 2, ... of the given kinds, and the coordination server under them."""

    def __init__(self, directory, kinds=(TARGET,) * 3, zookeeper=TARGET, config=None, linked=False, log_dirs=1):
        """`linked`: other brokers reach each broker through its `link`, which may be cut. `log_dirs`: so many each."""
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config, self.linked, self.log_dirs = config or {}, linked, log_dirs
        self.zookeeper_port = free_port()
        self.zookeeper_kind = zookeeper
        self.ensemble = Ensemble(self.directory) if zookeeper == "ensemble" else None
        self.brokers = {n: Broker(self, n, kind) for n, kind in enumerate(kinds, 1)}
        self.server = self.zk = None

    @property
    def zookeeper(self):
        return self.ensemble.addresses if self.ensemble else f"127.0.0.1:{self.zookeeper_port}"

    @property
    def bootstrap(self):
        return ",".join(b.address for b in self.brokers.values())

    def __getitem__(self, number):
        return self.brokers[number]

    def start(self, one_by_one=False):
        """Starts everything; one by one, the first broker is the controller."""
        if self.ensemble:
            self.ensemble.start().wait(1, 2, 3)
        else:
            self._start_server()
        # by default it would come back to a restarted server later and later, and find its session expired
        self.zk = KazooClient(self.zookeeper, timeout=30, connection_retry={"max_tries": -1, "max_delay": 0.5},
                              command_retry={"max_tries": 100, "max_delay": 0.5})
        self.zk.start(60)
        for broker in self.brokers.values():
            broker.start()
            if one_by_one:
                wait_for(self.controller, "a controller")
        self.wait_registered(self.brokers)
        return self

    def _start_server(self):
        zoo = self.directory / "zoo.cfg"
        zoo.write_text(f"tickTime=1000\ndataDir={self.directory}/zookeeper\nclientPort={self.zookeeper_port}\n"
                       "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n")
        if self.zookeeper_kind == "apache":
            args = java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", zoo, heap="256m")
        else:
            args = [BINARY, "zookeeper", str(zoo)]
        self.server = Process(args, self.directory / "zookeeper.log")
        wait_for(lambda: listens(self.zookeeper_port), "the coordination server")

    def wait_registered(self, numbers):
        """Until these brokers, and no others, are registered."""
        wanted = sorted(str(n) for n in numbers)

        def registered():
            for number in numbers:
                assert self[number].alive(), f"broker {number} ended; its log ends:\n{self[number].text()[-3000:]}"
            return (sorted(self._read(self.zk.get_children, "/brokers/ids") or ()) == wanted
                    and all(knows_controller(self[n].port) for n in numbers if self[n].kind == "apache"))
        wait_for(registered, f"brokers {wanted} to be registered")

    def _read(self, call, path):
        """The answer, None if there is no such node; asked again where the server goes away under the question."""
        try:
            return self.zk.retry(call, path)
        except NoNodeError:
            return None

    def json(self, path):
        """A node's content, None if it is not there."""
        found = self._read(self.zk.get, path)
        return found and json.loads(found[0])

    def state(self, topic, partition=0):
        return self.json(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def controller(self):
        node = self.json("/controller")
        return node and node["brokerid"]

    def wait_isr(self, topic, members, partition=0):
        """Until the ISR has just these members."""
        def found():
            state = self.state(topic, partition)
            return state and sorted(state["isr"]) == sorted(members) and state
        try:
            return wait_for(found, f"{topic}-{partition} to have the ISR {members}")
        except AssertionError:
            raise AssertionError(f"{topic}-{partition} has {self.state(topic, partition)}, not the ISR {members}") from None

    def remove(self):
        if self.zk:
            self.zk.stop()
            self.zk.close()
        for broker in self.brokers.values():
            if broker.alive():
                broker.kill()
            if broker.link:
                broker.link.remove()
        if self.server and self.server.alive():
            self.server.kill()
        if self.ensemble:
            self.ensemble.kill()
