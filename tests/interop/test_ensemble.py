"""Three brokers on an ensemble of three Apache ZooKeeper servers, of which some or all die: no acknowledged record is lost,
and no broker needs a restart."""

import pytest

from replicated import Load, check, create
from servers import wait_for

TOPIC = "coordinated"


@pytest.fixture
def loaded(brokers):
    cluster = brokers(zookeeper="ensemble").start()
    create(cluster, TOPIC, 3)
    for p in range(3):
        cluster.wait_isr(TOPIC, [1, 2, 3], p)
    load = Load(cluster.bootstrap, TOPIC, 3)
    load.wait_for_more()
    yield cluster, load
    load.stopping.set()


def ends_well(cluster, load):
    cluster.wait_registered(cluster.brokers)
    # the cluster can still change
    create(cluster, "made-afterwards", 3)
    cluster.wait_isr("made-afterwards", [1, 2, 3])
    for p in range(3):
        cluster.wait_isr(TOPIC, [1, 2, 3], p)
    load.wait_for_more()
    check(cluster, TOPIC, load.stop(), 3)
    assert all(broker.alive() for broker in cluster.brokers.values())


def test_the_leader_of_the_ensemble_dies(loaded):
    cluster, load = loaded
    leader = wait_for(cluster.ensemble.leader, "the ensemble's leader")
    cluster.ensemble.kill(leader)
    cluster.ensemble.wait(*[n for n in (1, 2, 3) if n != leader])
    load.wait_for_more()
    cluster.ensemble.start(leader).wait(1, 2, 3)
    ends_well(cluster, load)


def test_the_whole_ensemble_is_restarted(loaded):
    cluster, load = loaded
    cluster.ensemble.kill()
    load.wait_for_more()  # leaders and followers need no ZooKeeper while nothing changes
    cluster.ensemble.start().wait(1, 2, 3)
    ends_well(cluster, load)
