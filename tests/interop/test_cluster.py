"""Three brokers: every acknowledged record survives the death of its leader."""

import signal

import pytest

from replicated import Load, check, create, kill_leaders
from servers import TARGET, wait_for


def test_no_acknowledged_record_is_lost_with_its_leader(brokers):
    kill_leaders(brokers().start(), 3)


def test_leaders_move_away_from_a_broker_that_stops(brokers):
    cluster = brokers().start()
    kill_leaders(cluster, 2, lambda broker: broker.stop())


def test_followers_that_cannot_fetch_leave_the_isr(brokers):
    """A stopped process keeps its session for a while, so only the leader can notice."""
    cluster = brokers(config={"replica.lag.time.max.ms": 2000, "zookeeper.session.timeout.ms": 30000}).start()
    topic = "lagging"
    create(cluster, topic)
    state = cluster.wait_isr(topic, [1, 2, 3])
    others = [n for n in cluster.brokers if n not in (state["leader"], cluster.controller())]
    paused = cluster[others[0]]
    load = Load(cluster.bootstrap, topic)
    load.wait_for_more()
    paused.process.send(signal.SIGSTOP)
    try:
        cluster.wait_isr(topic, [n for n in cluster.brokers if n != paused.number])
        load.wait_for_more()
    finally:
        paused.process.send(signal.SIGCONT)
    cluster.wait_isr(topic, [1, 2, 3])
    check(cluster, topic, load.stop())


def test_a_controller_that_was_paused_past_its_session_is_not_obeyed(brokers):
    cluster = brokers().start()
    topic = "zombie"
    create(cluster, topic, 3)
    load = Load(cluster.bootstrap, topic, 3)
    load.wait_for_more()
    zombie = cluster.controller()
    others = [n for n in cluster.brokers if n != zombie]
    cluster[zombie].process.send(signal.SIGSTOP)
    try:
        wait_for(lambda: cluster.controller() in others, "another controller")
        epoch = cluster.json("/controller_epoch")
        for p in range(3):
            assert cluster.wait_isr(topic, others, p)["leader"] in others
        load.wait_for_more()
    finally:
        cluster[zombie].process.send(signal.SIGCONT)
    cluster.wait_registered(cluster.brokers)
    for p in range(3):
        cluster.wait_isr(topic, [1, 2, 3], p)
    assert cluster.controller() in others
    assert cluster.json("/controller_epoch") == epoch
    load.wait_for_more()
    check(cluster, topic, load.stop(), 3)


@pytest.mark.skipif(TARGET == "apache", reason="a killed Apache broker does not start before its session has ended")
def test_whoever_is_killed_at_whatever_moment(brokers):
    """Brokers die one after the other, the controller too, without waiting for anything but the ISR to be two again."""
    cluster = brokers().start()
    topic = "killed"
    create(cluster, topic, 6)
    load = Load(cluster.bootstrap, topic, 6)
    for round in range(4):
        load.wait_for_more(100)
        victim = cluster.controller() if round % 2 else 1 + round % 3
        for p in range(6):
            # with fewer, the death of one more may lose what only it has
            wait_for(lambda: len(cluster.state(topic, p)["isr"]) == 3, "all to be in sync")
        cluster[victim].kill()
        cluster[victim].start()
    load.wait_for_more()
    for p in range(6):
        cluster.wait_isr(topic, [1, 2, 3], p)
    check(cluster, topic, load.stop(), 6)


def test_a_leader_that_nobody_reaches_acknowledges_nothing_alone(brokers):
    """Clients and ZooKeeper reach it, the other brokers do not: it is alone in the ISR until the link is there again."""
    cluster = brokers(linked=True, config={"replica.lag.time.max.ms": 2000, "replica.socket.timeout.ms": 2000}).start()
    topic = "cut-off"
    create(cluster, topic)
    state = cluster.wait_isr(topic, [1, 2, 3])
    load = Load(cluster.bootstrap, topic)
    load.wait_for_more()
    leader = state["leader"]
    cluster[leader].link.cut()
    # the controller too asks through the link, so a leader that is the controller can't even tell itself
    if cluster.controller() != leader:
        cluster.wait_isr(topic, [leader])
    known = len(load.acknowledged)
    cluster[leader].link.heal()
    cluster.wait_isr(topic, [1, 2, 3])
    load.wait_for_more()
    assert len(load.acknowledged) > known
    check(cluster, topic, load.stop())
