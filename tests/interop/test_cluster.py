"""Three brokers: every acknowledged record survives the death of its leader."""

import signal

from replicated import Load, check, create, kill_leaders


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
