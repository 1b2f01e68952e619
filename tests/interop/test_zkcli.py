"""zkCli of Apache ZooKeeper 3.9.5, and `gracchus zk` beside it, on the same tree."""

import os
import pty
import re
import select
import signal

import pytest

from servers import BINARY, TARGET, gracchus, java, run


def zkcli(cluster, *command, **options):
    # the event of the connection is printed by a thread of its own: the command waits for it, or could print before
    return run(java("zookeeper", "org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", cluster.zookeeper, *command),
               **options)


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
    ["ls", "/"], ["ls", "-s", "/brokers"], ["ls", "-R", "/tree"], ["get", "-s", "/cluster/id"], ["get", "/controller"],
    ["stat", "/brokers/ids"], ["stat", "/brokers/ids/0"], ["getAcl", "/controller"], ["getAllChildrenNumber", "/"],
    ["get", "-s", "/consumers"], ["get", "/no/such"], ["stat", "/no/such"], ["ls", "/no/such"]])
def test_shell_prints_as_zkcli(cluster, command):
    env = {"TZ": "UTC"}
    if command[-1] == "/tree":
        # of its own: the brokers' are changed by the tests before
        for path in ("", "/a", "/a/b", "/a/b/c", "/d"):
            gracchus("zk", "-server", cluster.zookeeper, "create", "/tree" + path)
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


@pytest.mark.skipif(TARGET != "gracchus", reason="compares gracchus' own shell with zkCli")
def test_quotas_as_zkcli(cluster, topic):
    """The same commands by either shell, each on a node of its own: same words, same exit codes, same znodes."""
    own, other = f"/{topic}-own", f"/{topic}-other"
    for path in (own, other):
        gracchus("zk", "-server", cluster.zookeeper, "create", path, "datadata")
        gracchus("zk", "-server", cluster.zookeeper, "create", path + "/a", "x")
    for command in ["setquota -n 1 PATH", "setquota -B 200 PATH", "listquota PATH", "get /zookeeper/quotaPATH/zookeeper_limits",
                    "get /zookeeper/quotaPATH/zookeeper_stats", "setquota -b 5 PATH/a", "setquota -n x PATH", "setquota -n 0 PATH",
                    "setquota -n 5 PATH/none", "setquota PATH", "delquota -n PATH", "listquota PATH", "delquota PATH",
                    "ls -R /zookeeper/quotaPATH", "delquota PATH", "listquota PATH",
                    "reconfig -remove 2", "reconfig", "reconfig -members server.1=a:1:2 -add server.2=b:1:2"]:
        ours = gracchus("zk", "-server", cluster.zookeeper, *command.replace("PATH", own).split(), check=False)
        theirs = zkcli(cluster, *command.replace("PATH", other).split(), check=False)
        assert ours.returncode == theirs.returncode, command
        shown = result(re.sub(r"(?m)^Connecting to .*\n", "", theirs.stdout))
        assert ours.stdout.strip() == shown.strip().replace(other, own), command
        # the Java client's log lines stand there, too
        for line in filter(None, ours.stderr.splitlines()):
            assert line in theirs.stderr.replace(other, own), command


@pytest.mark.skipif(TARGET != "gracchus", reason="gracchus' own shell")
def test_a_terminal_has_history_and_completion(cluster, topic):
    """On a terminal: the arrow brings lines back, the tabulator completes commands and paths."""
    gracchus("zk", "-server", cluster.zookeeper, "create", "/" + topic)
    gracchus("zk", "-server", cluster.zookeeper, "create", f"/{topic}/only-child", "its data")
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(BINARY, [BINARY, "zk", "-server", cluster.zookeeper])
    seen = b""

    def expect(text):
        nonlocal seen
        while text.encode() not in seen:
            assert select.select([terminal], [], [], 60)[0], seen
            seen += os.read(terminal, 4096)
        seen = seen.split(text.encode(), 1)[1]
    try:
        expect("(CONNECTED) 0] ")
        os.write(terminal, f"get /{topic[:-1]}\t/on\t\r".encode())
        expect("its data")
        expect("(CONNECTED) 1] ")
        # the line before, by the arrow up
        os.write(terminal, b"\x1b[A\r")
        expect("its data")
        expect("(CONNECTED) 2] ")
        os.write(terminal, b"whoa\t\r")
        expect("Auth scheme: User")
        os.write(terminal, b"quit\r")
    except BaseException:
        os.kill(pid, signal.SIGKILL)  # it would wait for the next command for ever
        raise
    finally:
        status = os.waitpid(pid, 0)[1]
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
