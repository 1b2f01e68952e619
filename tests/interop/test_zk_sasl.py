"""SASL DIGEST-MD5 to the coordination server, with Apache ZooKeeper's own client."""

import pytest

from servers import BINARY, TARGET, Process, free_port, java, listens, run, wait_for

JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="kafka-secret";
};
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="PASSWORD";
};
"""


@pytest.fixture
def zookeeper(tmp_path):
    port = free_port()
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(JAAS.replace("PASSWORD", "kafka-secret"))
    (tmp_path / "wrong.conf").write_text(JAAS.replace("PASSWORD", "wrong"))
    zoo = tmp_path / "zoo.cfg"
    zoo.write_text(f"tickTime=2000\ndataDir={tmp_path}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
                   "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
                   f"java.security.auth.login.config={jaas}\nadmin.enableServer=false\n")
    if TARGET == "gracchus":
        args = [BINARY, "zookeeper", zoo]
    else:
        args = java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", zoo,
                    properties=[f"java.security.auth.login.config={jaas}"])
    server = Process(args, tmp_path / "zookeeper.log")
    wait_for(lambda: listens(port), "ZooKeeper")
    yield f"127.0.0.1:{port}", tmp_path
    server.kill()


def zkcli(zookeeper, login, *command):
    address, directory = zookeeper
    # In FIPS mode, its default, the Java client has no DIGEST-MD5.
    properties = ["zookeeper.fips-mode=false"]
    if login:
        properties.append(f"java.security.auth.login.config={directory}/{login}.conf")
    done = run(java("zookeeper", "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", address, *command,
                    properties=properties), check=False)
    return done.stdout + done.stderr


def test_the_java_client_logs_in(zookeeper):
    assert "sasl: kafka" in zkcli(zookeeper, "jaas", "whoami")
    assert "Created /own" in zkcli(zookeeper, "jaas", "create", "/own", "x", "sasl:kafka:cdrwa")
    assert "'sasl,'kafka" in zkcli(zookeeper, "jaas", "getAcl", "/own")
    assert "Insufficient permission : /own" in zkcli(zookeeper, None, "get", "/own")
    assert "AuthFailed" in zkcli(zookeeper, "wrong", "get", "/own")
