"""TLS to the coordination server, with Apache ZooKeeper's own client and stores that the JDK's keytool made."""

import pytest

from servers import BINARY, TARGET, Process, free_port, java, listens, run, wait_for

PASSWORD = "secret1"


def keytool(*args):
    run(["keytool", *args, "-storepass", PASSWORD])


def stores(directory):
    """Key stores of a server and of two clients, and a trust store that knows the server and the first of them."""
    for name in ("server", "kafka-client", "stranger"):
        keytool("-genkeypair", "-alias", name, "-keyalg", "EC", "-validity", "100", "-storetype", "PKCS12", "-keypass", PASSWORD,
                "-dname", f"CN={name},OU=Dev,O=Test", "-ext", "san=dns:localhost,ip:127.0.0.1",
                "-keystore", directory / f"{name}.p12")
        if name != "stranger":
            keytool("-exportcert", "-alias", name, "-keystore", directory / f"{name}.p12", "-file", directory / f"{name}.crt")
            keytool("-importcert", "-noprompt", "-alias", name, "-file", directory / f"{name}.crt", "-storetype", "PKCS12",
                    "-keystore", directory / "trust.p12")


@pytest.fixture
def zookeeper(tmp_path):
    stores(tmp_path)
    port = free_port()
    zoo = tmp_path / "zoo.cfg"
    zoo.write_text(f"tickTime=2000\ndataDir={tmp_path}/zookeeper\nsecureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
                   "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                   f"ssl.keyStore.location={tmp_path}/server.p12\nssl.keyStore.password={PASSWORD}\n"
                   f"ssl.trustStore.location={tmp_path}/trust.p12\nssl.trustStore.password={PASSWORD}\n"
                   "ssl.clientHostnameVerification=false\nadmin.enableServer=false\n")
    if TARGET == "gracchus":
        args = [BINARY, "zookeeper", zoo]
    else:
        args = java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", zoo)
    server = Process(args, tmp_path / "zookeeper.log")
    wait_for(lambda: listens(port), "ZooKeeper")
    yield f"127.0.0.1:{port}", tmp_path
    server.kill()


def zkcli(zookeeper, client, *command, timeout_ms=30_000):
    address, directory = zookeeper
    properties = ["zookeeper.client.secure=true", "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
                  f"zookeeper.ssl.keyStore.location={directory}/{client}.p12", f"zookeeper.ssl.keyStore.password={PASSWORD}",
                  f"zookeeper.ssl.trustStore.location={directory}/trust.p12", f"zookeeper.ssl.trustStore.password={PASSWORD}"]
    done = run(java("zookeeper", "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-timeout", timeout_ms, "-server",
                    address, *command, properties=properties), check=False)
    return done.stdout + done.stderr


def test_the_java_client_speaks_tls(zookeeper):
    assert "Created /own" in zkcli(zookeeper, "kafka-client", "create", "/own", "x", "auth::cdrwa")
    # It prints ids in the encoding of URLs.
    assert "'x509,'CN=kafka-client%2COU=Dev%2CO=Test" in zkcli(zookeeper, "kafka-client", "getAcl", "/own")
    assert "'x509," not in zkcli(zookeeper, "stranger", "getAcl", "/own", timeout_ms=3000)
