"""Brokers that tell ZooKeeper who they are, by SASL and by TLS, and what they let others do with their znodes."""

import base64
import hashlib

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from servers import BINARY, LOG4J, TARGET, Process, free_port, gracchus, java, knows_controller, listens, run, wait_for

PASSWORD = "secret1"
SUPER = "super:boss"
JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="kafka-secret";
};
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="PASSWORD";
};
"""


def keytool(*args):
    run(["keytool", *args, "-storepass", PASSWORD])


class ZooKeeper:
    """A coordination server of either kind, with a port for plain text and one for TLS, where certificates are asked for."""

    def __init__(self, directory, kind, stores):
        self.directory, self.kind, self.stores = directory, kind, stores
        directory.mkdir()
        self.port, self.secure_port = free_port(), free_port()
        self.jaas = directory / "jaas.conf"
        self.jaas.write_text(JAAS.replace("PASSWORD", "kafka-secret"))
        digest = base64.b64encode(hashlib.sha1(SUPER.encode()).digest()).decode()
        self.config = directory / "zoo.cfg"
        self.config.write_text(
            f"tickTime=2000\ndataDir={directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"secureClientPort={self.secure_port}\nsecureClientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
            f"java.security.auth.login.config={self.jaas}\nDigestAuthenticationProvider.superDigest=super:{digest}\n"
            f"ssl.keyStore.location={stores}/server.p12\nssl.keyStore.password={PASSWORD}\n"
            f"ssl.trustStore.location={stores}/trust.p12\nssl.trustStore.password={PASSWORD}\n"
            "ssl.clientHostnameVerification=false\n")
        self.start()

    def start(self):
        if self.kind == "gracchus":
            args = [BINARY, "zookeeper", self.config]
        else:
            args = java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.config,
                        properties=[f"java.security.auth.login.config={self.jaas}"])
        self.process = Process(args, self.directory / "zookeeper.log")
        wait_for(lambda: listens(self.port) and listens(self.secure_port), "ZooKeeper")

    def tls(self):
        """The broker's keys for the port that speaks TLS."""
        return {"zookeeper.ssl.client.enable": "true",
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
                "zookeeper.ssl.keystore.location": self.stores / "broker.jks", "zookeeper.ssl.keystore.password": PASSWORD,
                "zookeeper.ssl.truststore.location": self.stores / "trust.p12",
                "zookeeper.ssl.truststore.password": PASSWORD,
                # The server's default is 1.3 alone, Kafka's 1.2 alone.
                **({"zookeeper.ssl.protocol": "TLSv1.3"} if TARGET == "apache" else {})}

    def acls(self, chroot):
        """Who may do what with each znode."""
        client = KazooClient(f"127.0.0.1:{self.port}{chroot}", auth_data=[("digest", SUPER)])
        client.start(60)
        found = {}

        def walk(path):
            try:
                acls, _ = client.get_acls(path)
                children = client.get_children(path)
            except NoNodeError:  # meanwhile
                return
            found[path] = {(acl.perms, acl.id.scheme, acl.id.id) for acl in acls}
            for child in children:
                walk(f"{path.rstrip('/')}/{child}")

        walk("/")
        client.stop()
        client.close()
        return found


class Broker:
    def __init__(self, directory, kind, connect, config, jaas=None):
        directory.mkdir()
        self.port = free_port()
        properties = directory / "server.properties"
        config = {"broker.id": 0, "listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "zookeeper.connect": connect,
                  "log.dirs": directory / "logs", "offsets.topic.replication.factor": 1, **config}
        properties.write_text("".join(f"{k}={v}\n" for k, v in config.items()))
        login = [f"java.security.auth.login.config={jaas}"] if jaas else []
        if kind == "gracchus":
            args, env = [BINARY, "broker", properties], {"KAFKA_OPTS": " ".join(f"-D{p}" for p in login)}
        else:
            log4j = directory / "log4j.properties"
            log4j.write_text(LOG4J % ("INFO", "System.out"))
            args, env = java("kafka39", "kafka.Kafka", properties, properties=[f"log4j.configuration=file:{log4j}", *login]), {}
        self.process = Process(args, directory / "broker.log", env=env)

    def ready(self):
        def serving():
            assert self.process.alive(), self.process.text()[-3000:]
            return knows_controller(self.port)
        wait_for(serving, "the broker")
        return self

    def create(self, topic):
        gracchus("topics", "--bootstrap-server", f"127.0.0.1:{self.port}", "--create", "--topic", topic, "--partitions", "1")

    def configure(self):
        gracchus("configs", "--bootstrap-server", f"127.0.0.1:{self.port}", "--entity-type", "brokers", "--entity-name", "0",
                 "--alter", "--add-config", "log.cleaner.backoff.ms=14000")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Key stores of a server and of a broker, and a trust store that knows both."""
    directory = tmp_path_factory.mktemp("stores")
    for name, store in (("server", "server.p12"), ("broker", "broker.jks")):
        keytool("-genkeypair", "-alias", name, "-keyalg", "EC", "-validity", "100", "-keypass", PASSWORD,
                "-storetype", "JKS" if store.endswith("jks") else "PKCS12", "-dname", f"CN={name},OU=Dev,O=Test",
                "-ext", "san=ip:127.0.0.1", "-keystore", directory / store)
        keytool("-exportcert", "-alias", name, "-keystore", directory / store, "-file", directory / f"{name}.crt")
        keytool("-importcert", "-noprompt", "-alias", name, "-file", directory / f"{name}.crt", "-storetype", "PKCS12",
                "-keystore", directory / "trust.p12")
    return directory


@pytest.fixture(scope="module")
def apache(tmp_path_factory, stores):
    server = ZooKeeper(tmp_path_factory.mktemp("security") / "zookeeper", "apache", stores)
    yield server
    server.process.kill()


@pytest.fixture
def brokers(tmp_path):
    started = []

    def start(*args, **options):
        started.append(Broker(tmp_path / f"broker-{len(started)}", *args, **options))
        return started[-1]

    yield start
    for broker in started:
        broker.process.kill()


def test_acls_are_those_of_a_jvm_broker(apache, brokers):
    """The sensitive nodes are the broker's alone, the others may be read, and what old consumers write is open."""
    by_sasl = {"zookeeper.set.acl": "true"}
    plain, secure = f"127.0.0.1:{apache.port}", f"127.0.0.1:{apache.secure_port}"
    started = {
        "/jvm": brokers("apache", f"{plain}/jvm", by_sasl, jaas=apache.jaas),
        "/sasl": brokers(TARGET, f"{plain}/sasl", by_sasl, jaas=apache.jaas),
        "/tls": brokers(TARGET, f"{secure}/tls", by_sasl | apache.tls()),
    }
    for broker in started.values():
        broker.ready().create("t")
        broker.configure()
    jvm, sasl, tls = (apache.acls(chroot) for chroot in started)
    common = jvm.keys() & sasl.keys() & tls.keys()
    assert common >= {"/", "/brokers/ids/0", "/brokers/topics/t/partitions/0/state", "/config/topics/t", "/config/brokers/0",
                      "/config/users", "/controller", "/controller_epoch", "/cluster/id", "/consumers", "/admin/delete_topics"}
    assert {p: sasl[p] for p in common} == {p: jvm[p] for p in common}
    by_certificate = {p: {(perms, "sasl", "kafka") if scheme == "x509" else (perms, scheme, who)
                          for perms, scheme, who in acl} for p, acl in tls.items()}
    assert {p: by_certificate[p] for p in common} == {p: jvm[p] for p in common}
    assert (31, "x509", "CN=broker,OU=Dev,O=Test") in tls["/brokers/ids/0"]


def test_a_broker_comes_back_as_itself(tmp_path, stores, brokers):
    """By SASL over TLS, after ZooKeeper was restarted."""
    server = ZooKeeper(tmp_path / "zookeeper", TARGET, stores)
    try:
        config = {"zookeeper.set.acl": "true"} | server.tls()
        broker = brokers(TARGET, f"127.0.0.1:{server.secure_port}", config, jaas=server.jaas).ready()
        broker.create("before")
        server.process.kill()
        server.start()
        broker.create("after")
        acls = server.acls("/")
        mine = {(31, "x509", "CN=broker,OU=Dev,O=Test"), (31, "sasl", "kafka")}
        assert acls["/config/topics/before"] == acls["/config/topics/after"] == mine | {(1, "world", "anyone")}
        assert acls["/config/users"] == mine
        keys = tmp_path / "tls.properties"
        keys.write_text("".join(f"{key}={value}\n" for key, value in server.tls().items()))
        shell = ["zk", "-server", f"127.0.0.1:{server.secure_port}", "-zk-tls-config-file", keys, "getAcl", "/config/users"]
        shown = gracchus(*shell, env={"KAFKA_OPTS": f"-Djava.security.auth.login.config={server.jaas}"}).stdout
        assert "'x509,'CN=broker%2COU=Dev%2CO=Test\n: cdrwa" in shown and "'sasl,'kafka\n: cdrwa" in shown
        stranger = gracchus("zk", "-server", f"127.0.0.1:{server.port}", "getAcl", "/config/users", check=False)
        assert "/config/users" in stranger.stderr and "sasl" not in stranger.stdout
    finally:
        server.process.kill()


def test_who_is_not_let_in_is_told_why(apache, tmp_path, brokers):
    wrong = tmp_path / "wrong.conf"
    wrong.write_text(JAAS.replace("PASSWORD", "not-the-one"))
    broker = brokers(TARGET, f"127.0.0.1:{apache.port}/wrong", {}, jaas=wrong)
    assert broker.process.popen.wait(60) == 1
    text = broker.process.text()
    assert "not-the-one" not in text
    if TARGET == "gracchus":
        assert "user kafka" in text and f"section Client of {wrong}" in text
        plain = brokers(TARGET, f"127.0.0.1:{apache.secure_port}/x", {})
        wait_for(lambda: "this port speaks TLS and the client plain text" in plain.process.text(), "the broker's word")
        secure = brokers(TARGET, f"127.0.0.1:{apache.port}/x", apache.tls())
        wait_for(lambda: "this port probably plain text" in secure.process.text(), "the broker's word")
        shy = {key: value for key, value in apache.tls().items() if "keystore" not in key}
        unknown = brokers(TARGET, f"127.0.0.1:{apache.secure_port}/x", shy)
        wait_for(lambda: "wants a client's certificate that it trusts" in unknown.process.text(), "the broker's word")
