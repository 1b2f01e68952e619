"""kazoo and its recipes against the coordination server."""

import subprocess
import sys
import threading

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError, RolledBackError,
                              RuntimeInconsistency)
from kazoo.security import make_digest_acl
from kazoo.recipe.watchers import ChildrenWatch, DataWatch

from servers import wait_for


@pytest.fixture
def root(topic):
    return "/" + topic


@pytest.fixture
def connect(cluster):
    made = []

    def make(**options):
        client = KazooClient(hosts=cluster.zookeeper, **options)
        client.start(timeout=60)
        made.append(client)
        return client
    yield make
    for client in made:
        client.stop()
        client.close()


def test_create_read_set_delete(connect, root):
    zk = connect()
    assert zk.create(root, b"one") == root
    data, stat = zk.get(root)
    assert data == b"one" and stat.version == 0 and stat.czxid == stat.mzxid == stat.pzxid
    assert zk.set(root, b"two", version=0).version == 1
    with pytest.raises(BadVersionError):
        zk.set(root, b"three", version=0)
    with pytest.raises(NodeExistsError):
        zk.create(root)
    zk.create(root + "/child")
    with pytest.raises(NotEmptyError):
        zk.delete(root)
    assert zk.get_children(root) == ["child"]
    zk.delete(root, recursive=True)
    with pytest.raises(NoNodeError):
        zk.get(root)
    assert zk.exists(root) is None


def test_sequential_and_ephemeral(connect, root):
    zk, other = connect(), connect()
    zk.create(root)
    names = [zk.create(root + "/n-", sequence=True) for _ in range(3)]
    assert names == [f"{root}/n-{i:010d}" for i in range(3)]
    mine = other.create(root + "/e", b"", ephemeral=True)
    assert zk.get(mine)[1].ephemeralOwner == other.client_id[0]
    other.stop()
    assert zk.exists(mine) is None     # gone before the close is acknowledged


def test_one_shot_watches_fire_once(connect, root):
    zk, other = connect(), connect()
    events = []
    zk.create(root)
    zk.get(root, watch=events.append)
    zk.get_children(root, watch=events.append)
    zk.exists(root + "/x", watch=events.append)
    other.set(root, b"1")
    other.set(root, b"2")
    other.create(root + "/x")
    other.create(root + "/y")
    zk.sync(root)
    wait_for(lambda: len(events) >= 3, "three events")
    zk.get(root)
    assert sorted((e.type, e.path) for e in events) == sorted([
        ("CHANGED", root), ("CHILD", root), ("CREATED", root + "/x")])


def test_watchers_recipe_follows_every_change(connect, root):
    zk, other = connect(), connect()
    zk.create(root, b"0")
    values, children = [], []
    DataWatch(zk, root, lambda data, stat: values.append(data))
    ChildrenWatch(zk, root, lambda names: children.append(sorted(names)))
    for i in range(1, 4):
        other.set(root, b"%d" % i)
        wait_for(lambda: values[-1] == b"%d" % i, "the value")
        other.create(f"{root}/{i}")
        wait_for(lambda: children[-1] == [str(n) for n in range(1, i + 1)], "the children")


def test_transaction_is_all_or_nothing(connect, root):
    zk = connect()
    zk.create(root)
    t = zk.transaction()
    t.create(root + "/a", b"1")
    t.set_data(root, b"2")
    t.check(root, 1)
    t.create(root + "/a/b")
    assert [type(r) is not Exception for r in t.commit()] == [True] * 4
    t = zk.transaction()
    t.create(root + "/c")
    t.delete(root + "/missing")
    t.set_data(root, b"3")
    results = t.commit()
    assert [type(r) for r in results] == [RolledBackError, NoNodeError, RuntimeInconsistency]
    assert zk.exists(root + "/c") is None and zk.get(root)[0] == b"2"


def test_acl_with_digest(connect, root):
    zk = connect(auth_data=[("digest", "ann:secret")])
    zk.create(root, b"mine", acl=[make_digest_acl("ann", "secret", all=True)])
    stranger = connect()
    with pytest.raises(NoAuthError):
        stranger.get(root)
    stranger.add_auth("digest", "ann:secret")
    assert stranger.get(root)[0] == b"mine"
    acls, _ = zk.get_acls(root)
    assert acls[0].id.scheme == "digest" and acls[0].id.id.startswith("ann:") and acls[0].perms == 31


def test_lock_and_election_recipes(connect, root):
    first, second = connect(), connect()
    order = []
    a, b = first.Lock(root + "/lock", "a"), second.Lock(root + "/lock", "b")
    a.acquire()
    waiting = threading.Thread(target=lambda: (b.acquire(timeout=60), order.append("b"), b.release()))
    waiting.start()
    wait_for(lambda: len(a.contenders()) == 2, "the second contender")
    order.append("a")
    a.release()
    waiting.join(60)
    assert order == ["a", "b"]
    won = threading.Event()
    election = first.Election(root + "/election", "one")
    t = threading.Thread(target=election.run, args=(won.set,))
    t.start()
    assert won.wait(60)
    t.join(60)


def test_queue_counter_barrier_party_and_lease(connect, root):
    zk, other = connect(), connect()
    queue = zk.Queue(root + "/queue")
    for i in range(5):
        queue.put(b"%d" % i)
    assert [other.Queue(root + "/queue").get() for _ in range(5)] == [b"%d" % i for i in range(5)]
    counter = zk.Counter(root + "/counter")
    other_counter = other.Counter(root + "/counter")
    for _ in range(5):
        counter += 2
        other_counter -= 1
    assert counter.value == 5
    zk.Party(root + "/party", "one").join()
    other.Party(root + "/party", "two").join()
    assert sorted(zk.Party(root + "/party")) == ["one", "two"]
    barrier = zk.Barrier(root + "/barrier")
    barrier.create()
    assert not other.Barrier(root + "/barrier").wait(timeout=0.1)
    barrier.remove()
    assert other.Barrier(root + "/barrier").wait(timeout=60)


# a client that makes a node and falls silent when it is killed
DOOMED = """
import sys, time
from kazoo.client import KazooClient
zk = KazooClient(hosts=sys.argv[1], timeout=4)
zk.start(timeout=60)
zk.create(sys.argv[2], ephemeral=True)
print("made", flush=True)
time.sleep(3600)
"""


def test_session_expires_and_its_ephemerals_go(connect, cluster, root):
    zk = connect()
    zk.create(root)
    doomed = subprocess.Popen([sys.executable, "-c", DOOMED, cluster.zookeeper, root + "/e"], stdout=subprocess.PIPE, text=True)
    try:
        assert doomed.stdout.readline() == "made\n"
        gone = threading.Event()
        assert zk.exists(root + "/e", watch=lambda e: gone.set())
    finally:
        doomed.kill()
        doomed.communicate()
    assert gone.wait(60)
    assert zk.exists(root + "/e") is None


def test_session_survives_a_cut_connection(connect, root):
    zk, other = connect(), connect()
    zk.create(root, b"0")
    zk.create(root + "/mine", ephemeral=True)
    values = []
    DataWatch(zk, root, lambda data, stat: values.append(data))
    back = threading.Event()
    zk.add_listener(lambda s: back.set() if s == KazooState.CONNECTED else None)
    session = zk.client_id
    zk._connection._socket.shutdown(2)
    assert back.wait(60)
    assert zk.client_id[0] == session[0]
    other.set(root, b"1")
    wait_for(lambda: values[-1] == b"1", "the change after the reconnect")
    assert other.exists(root + "/mine").ephemeralOwner == session[0]


def test_four_letter_words(connect, cluster):
    zk = connect()
    assert zk.command(b"ruok") == "imok"
    assert zk.command(b"srvr").startswith("Zookeeper version: ")
    assert "Mode: standalone" in zk.command(b"srvr") and "Node count: " in zk.command(b"stat")
    keys = {line.split("\t")[0] for line in zk.command(b"mntr").splitlines()}
    assert {"zk_version", "zk_server_state", "zk_znode_count", "zk_watch_count", "zk_ephemerals_count",
            "zk_num_alive_connections", "zk_outstanding_requests", "zk_approximate_data_size"} <= keys
