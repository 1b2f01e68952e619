"""zkCli of Apache ZooKeeper 3.9.5, and `gracchus zk` beside it, on the same tree."""

import re

import pytest

from servers import TARGET, gracchus, java, run


def zkcli(cluster, *command, **options):
    done = run(java("zookeeper", "org.apache.zookeeper.ZooKeeperMain", "-server", cluster.zookeeper, *command), **options)
    return done


def result(text):
    """The output from the result on: without the banner and the log lines of the Java client."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("WatchedEvent")]
    return "\n".join(lines[starts[-1] + 1:] if starts else lines)


def test_zkcli_creates_reads_and_deletes(cluster, topic):
    path = "/" + topic
    zkcli(cluster, "create", path, "hello")
    zkcli(cluster, "create", "-s", path + "/n-", "one")
    assert result(zkcli(cluster, "ls", path).stdout).strip() == "[n-0000000000]"
    got = result(zkcli(cluster, "get", "-s", path).stdout).splitlines()
    assert got[0] == "hello" and any(line == "numChildren = 1" for line in got)
    zkcli(cluster, "set", "-v", "0", path, "bye")
    assert result(zkcli(cluster, "get", path).stdout).strip() == "bye"
    zkcli(cluster, "deleteall", path)
    failed = zkcli(cluster, "get", path, check=False)
    assert failed.returncode == 1 and f"Node does not exist: {path}" in failed.stdout + failed.stderr


@pytest.mark.skipif(TARGET != "gracchus", reason="compares gracchus' own shell with zkCli")
@pytest.mark.parametrize("command", [
    ["ls", "/"], ["ls", "-s", "/brokers"], ["ls", "-R", "/brokers"], ["get", "-s", "/cluster/id"], ["get", "/controller"],
    ["stat", "/brokers/ids"], ["stat", "/brokers/ids/0"], ["getAcl", "/controller"], ["getAllChildrenNumber", "/"],
    ["get", "-s", "/consumers"], ["get", "/no/such"], ["stat", "/no/such"], ["ls", "/no/such"]])
def test_shell_prints_as_zkcli(cluster, command):
    env = {"TZ": "UTC"}
    theirs = zkcli(cluster, *command, check=False, env=env)
    ours = gracchus("zk", "-server", cluster.zookeeper, *command, check=False, env=env)
    assert ours.returncode == theirs.returncode
    # a session's own watches and counters are not in these outputs; children come in hash order there
    def canonical(text):
        text = re.sub(r"\[([^\]=]*)\]", lambda m: "[" + ", ".join(sorted(m.group(1).split(", "))) + "]", text.strip())
        return sorted(text.splitlines()) if command[:2] == ["ls", "-R"] else text.splitlines()
    if theirs.returncode == 0:
        assert canonical(ours.stdout) == canonical(result(theirs.stdout))
    else:
        assert canonical(ours.stdout + ours.stderr)[-1] in theirs.stdout + theirs.stderr
