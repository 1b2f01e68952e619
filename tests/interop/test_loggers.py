"""Levels of log lines, shown and changed by kafka-configs while the broker runs (KIP-412)."""

import socket
import struct

from servers import gracchus, kafka_tool, wait_for
from wire import Connection

LOGGER = 8


def rubbish(port):
    """A frame that is refused with a line that names this connection's address."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(struct.pack(">i", -1))
        assert s.recv(1) == b""
        return f"127.0.0.1:{s.getsockname()[1]}"


def test_a_logger_is_silenced_and_speaks_again(own_cluster):
    cluster = own_cluster(target="gracchus").start()
    name = "gracchus_broker.net"

    def tool(*args):
        return kafka_tool("kafka-configs", "--bootstrap-server", cluster.bootstrap, "--entity-type", "broker-loggers",
                          "--entity-name", "0", *args).stdout

    heard = rubbish(cluster.kafka_port)
    wait_for(lambda: heard in cluster.log_text(), "the line about a bad frame")
    assert "Completed updating config for broker-logger 0." in tool("--alter", "--add-config", f"{name}=FATAL")
    described = tool("--describe")
    assert f"  {name}=FATAL sensitive=false synonyms={{}}\n" in described
    assert "  root=INFO sensitive=false synonyms={}\n" in described
    assert gracchus("configs", "--bootstrap-server", cluster.bootstrap, "--describe", "--broker-logger", "0").stdout == described
    unheard = rubbish(cluster.kafka_port)
    tool("--alter", "--delete-config", name)
    heard = rubbish(cluster.kafka_port)
    wait_for(lambda: heard in cluster.log_text(), "the line about a bad frame")
    assert unheard not in cluster.log_text()


def test_wrong_changes_are_refused_as_kafka_refuses_them(cluster):
    def change(logger, operation, value, node="0"):
        with Connection(cluster.kafka_port) as c:
            answer = c.call("IncrementalAlterConfigs", 1, Resources=[{"ResourceType": LOGGER, "ResourceName": node, "Configs": [
                {"Name": logger, "ConfigOperation": operation, "Value": value}]}])["Responses"][0]
            return answer["ErrorCode"], answer["ErrorMessage"]

    levels = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
    assert change("root", 0, "LOUD") == (
        40, f"Cannot set the log level of root to LOUD as it is not a supported log level. {levels}")
    assert change("no.such", 0, "INFO") == (40, "Logger no.such does not exist!")
    assert change("root", 1, None) == (42, "Removing the log level of the root logger is not allowed")
    assert change("root", 2, "INFO") == (42, "APPEND operation is not allowed for the BROKER_LOGGER resource")
    assert change("root", 0, None) == (42, "Null value not supported for : root")
    assert change("root", 0, "INFO", node="x") == (42, "Node id must be an integer, but it is: x")
    with Connection(cluster.kafka_port) as c:
        for node, problem in (("7", "Unexpected broker id, expected 0 but received 7"), ("", "Broker id must not be empty")):
            answer = c.call("DescribeConfigs", 4, Resources=[{"ResourceType": LOGGER, "ResourceName": node}])["Results"][0]
            assert (answer["ErrorCode"], answer["ErrorMessage"]) == (42, problem)
        answer = c.call("AlterConfigs", 2, Resources=[{"ResourceType": LOGGER, "ResourceName": "0"}])["Responses"][0]
        assert (answer["ErrorCode"], answer["ErrorMessage"]) == (42, "Unknown resource type 8")
