"""The group requests on the wire, each in all its versions: docs/groups.md as clients see it, errors first."""

import uuid

import pytest

from servers import wait_for
from wire import Connection, versions

NONE, UNKNOWN_TOPIC, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 0, 3, 15, 16
OFFSET_METADATA_TOO_LARGE, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID = 12, 22, 23, 24
TOPIC_ALREADY_EXISTS = 36
UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION = 25, 26, 27, 35
INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED = 42, 68, 69, 79
FENCED_INSTANCE_ID, GROUP_SUBSCRIBED_TO_TOPIC = 82, 86
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1\0\6protog" + b"\xff\xff\xff\xff"
TOPIC = "protog"


def every(api):
    return pytest.mark.parametrize("version", versions(api))


@pytest.fixture(scope="module")
def port(cluster):
    """The broker, with a topic and a coordinator that has loaded."""
    with Connection(cluster.kafka_port) as c:
        new = [{"Name": TOPIC, "NumPartitions": 2, "ReplicationFactor": 1}]
        create = lambda: c.call("CreateTopics", 4, Topics=new)["Topics"][0]["ErrorCode"] in (NONE, TOPIC_ALREADY_EXISTS)
        wait_for(create, "a controller that makes the topic")
        wait_for(lambda: c.call("FindCoordinator", 1, Key="any")["ErrorCode"] == NONE, "a coordinator")
        known = lambda: c.call("Metadata", 4, Topics=[{"Name": TOPIC}], AllowAutoTopicCreation=False)["Topics"][0]["Partitions"]
        wait_for(lambda: len(known()) == 2, "the topic")
        loaded = lambda: c.call("ListGroups", 0)["ErrorCode"] == NONE
        wait_for(loaded, "the groups")
    return cluster.kafka_port


@pytest.fixture
def c(port):
    with Connection(port, client_id="proto") as connection:
        yield connection


@pytest.fixture
def group():
    return f"proto-{uuid.uuid4()}"


def join_fields(group, **more):
    return {"GroupId": group, "SessionTimeoutMs": 10000, "RebalanceTimeoutMs": 20000, "ProtocolType": "consumer",
            "Protocols": [{"Name": "range", "Metadata": SUBSCRIPTION}, {"Name": "rr", "Metadata": b"x"}], **more}


def join(c, version, group, **more):
    """Joins as clients of this version do."""
    answer = c.call("JoinGroup", version, **join_fields(group, **more))
    if answer["ErrorCode"] == MEMBER_ID_REQUIRED:
        assert version >= 4 and answer["MemberId"].startswith("proto-")
        answer = c.call("JoinGroup", version, **join_fields(group, **{**more, "MemberId": answer["MemberId"]}))
    return answer


def sync(c, version, group, member, generation, assignments=(), **more):
    return c.call("SyncGroup", version, GroupId=group, GenerationId=generation, MemberId=member,
                  **{"ProtocolType": "consumer", "ProtocolName": "range",
                     "Assignments": [{"MemberId": m, "Assignment": a} for m, a in assignments], **more})


def stable(c, group, join_version=4, **more):
    joined = join(c, join_version, group, **more)
    assert joined["ErrorCode"] == NONE
    member, generation = joined["MemberId"], joined["GenerationId"]
    assert sync(c, 3, group, member, generation, [(member, b"mine")])["ErrorCode"] == NONE
    return member, generation


def commit(c, version, group, member="", generation=-1, offset=5, topic=TOPIC, partition=0, metadata="", **more):
    answer = c.call("OffsetCommit", version, GroupId=group, MemberId=member, GenerationIdOrMemberEpoch=generation,
                    Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": partition, "CommittedOffset": offset,
                             "CommittedMetadata": metadata}]}], **more)
    [topic] = answer["Topics"]
    return topic["Partitions"][0]["ErrorCode"]


def fetch(c, version, group, topics=((TOPIC, [0]),), **more):
    """(group's error, {(topic, partition): partition's answer})"""
    named = None if topics is None else [{"Name": t, "PartitionIndexes": p} for t, p in topics]
    if version >= 8:
        [answer] = c.call("OffsetFetch", version, Groups=[{"GroupId": group, "Topics": named}], **more)["Groups"]
        assert answer["GroupId"] == group
    else:
        answer = c.call("OffsetFetch", version, GroupId=group, Topics=named, **more)
    return answer.get("ErrorCode"), {(t["Name"], p["PartitionIndex"]): p for t in answer["Topics"] for p in t["Partitions"]}


@every("FindCoordinator")
def test_find_coordinator(c, port, group, version):
    if version < 4:
        found = c.call("FindCoordinator", version, Key=group)
        if version >= 1:
            assert found["ErrorMessage"] == "NONE"
    else:
        found, other = c.call("FindCoordinator", version, CoordinatorKeys=[group, "other"])["Coordinators"]
        assert (found["Key"], other["Key"]) == (group, "other") and other["Port"] == port
        assert found["ErrorMessage"] == ""
    assert (found["ErrorCode"], found["Host"], found["Port"]) == (NONE, "127.0.0.1", port)


@pytest.mark.parametrize("version", [1, 4, 5, 6])
def test_find_coordinator_of_unknown_kinds(c, version):
    share = COORDINATOR_NOT_AVAILABLE if version >= 6 else INVALID_REQUEST
    for kind, error in [(2, share), (9, INVALID_REQUEST)]:
        keys = {"Key": "a"} if version < 4 else {"CoordinatorKeys": ["a"]}
        found = c.call("FindCoordinator", version, KeyType=kind, **keys)
        found = found if version < 4 else found["Coordinators"][0]
        assert (found["ErrorCode"], found["NodeId"], found["Host"], found["Port"]) == (error, -1, "", -1)


@every("JoinGroup")
def test_join_and_the_answer_of_each_version(c, group, version):
    joined = join(c, version, group)
    assert (joined["ErrorCode"], joined["GenerationId"], joined["ProtocolName"]) == (NONE, 1, "range")
    assert joined["MemberId"] == joined["Leader"] and joined["MemberId"].startswith("proto-")
    uuid.UUID(joined["MemberId"].removeprefix("proto-"))
    assert joined.get("ProtocolType", "consumer") == "consumer"
    [member] = joined["Members"]
    assert (member["MemberId"], member["Metadata"]) == (joined["MemberId"], SUBSCRIPTION)
    assert not joined.get("SkipAssignment")


@every("JoinGroup")
def test_join_refused(c, group, version):
    nothing = None if version >= 7 else ""
    cases = [
        ({"GroupId": ""}, INVALID_GROUP_ID, ""),
        ({"GroupId": "", "MemberId": "m", "SessionTimeoutMs": 1}, INVALID_GROUP_ID, "m"),
        ({"SessionTimeoutMs": 5999}, INVALID_SESSION_TIMEOUT, ""),
        ({"SessionTimeoutMs": 1800001, "MemberId": "m"}, INVALID_SESSION_TIMEOUT, "m"),
        ({"MemberId": "m"}, UNKNOWN_MEMBER_ID, "m"),
        ({"ProtocolType": ""}, INCONSISTENT_PROTOCOL, ""),
        ({"Protocols": []}, INCONSISTENT_PROTOCOL, ""),
    ]
    for more, error, member in cases:
        answer = c.call("JoinGroup", version, **join_fields(group, **more))
        got = (answer["ErrorCode"], answer["MemberId"], answer["GenerationId"], answer["Leader"], answer["ProtocolName"])
        assert got == (error, member, -1, "", nothing), more
        assert answer["Members"] == []


@every("JoinGroup")
def test_join_a_group_in_use(c, port, group, version):
    stable(c, group)
    for more in [{"ProtocolType": "connect"}, {"Protocols": [{"Name": "other", "Metadata": b""}]}]:
        assert c.call("JoinGroup", version, **join_fields(group, **more))["ErrorCode"] == INCONSISTENT_PROTOCOL
    assert c.call("JoinGroup", version, **join_fields(group, MemberId="m"))["ErrorCode"] == UNKNOWN_MEMBER_ID


@every("SyncGroup")
def test_sync(c, group, version):
    joined = join(c, 5, group)
    member = joined["MemberId"]
    for who, generation, more, error in [
        (member, 0, {}, ILLEGAL_GENERATION),
        (member, 2, {"ProtocolName": "rr"}, ILLEGAL_GENERATION),
        ("x", 1, {}, UNKNOWN_MEMBER_ID),
        ("x", 0, {}, UNKNOWN_MEMBER_ID),
    ]:
        answer = sync(c, version, group, who, generation, **more)
        assert (answer["ErrorCode"], answer["Assignment"], answer.get("ProtocolName")) == (error, b"", None), (who, generation)
    if version >= 5:
        for more in [{"ProtocolName": "rr"}, {"ProtocolType": "connect"}, {"ProtocolName": None}, {"ProtocolType": None}]:
            assert sync(c, version, group, member, 1, **more)["ErrorCode"] == INCONSISTENT_PROTOCOL
    answer = sync(c, version, group, member, 1, [(member, b"mine"), ("stranger", b"his")])
    assert (answer["ErrorCode"], answer["Assignment"]) == (NONE, b"mine")
    if version >= 5:
        assert (answer["ProtocolType"], answer["ProtocolName"]) == ("consumer", "range")
    # again, in the stable group
    assert sync(c, version, group, member, 1)["Assignment"] == b"mine"
    assert sync(c, version, "no-such-group", member, 1)["ErrorCode"] == UNKNOWN_MEMBER_ID
    assert sync(c, version, "", member, 1)["ErrorCode"] == INVALID_GROUP_ID


@every("Heartbeat")
def test_heartbeat(c, port, group, version):
    beat = lambda **more: c.call("Heartbeat", version, **{"GroupId": group, "GenerationId": 1, "MemberId": member, **more})["ErrorCode"]
    member = "m"
    assert beat() == UNKNOWN_MEMBER_ID
    assert beat(GroupId="") == INVALID_GROUP_ID
    member, _ = stable(c, group)
    assert beat() == NONE
    assert beat(GenerationId=0) == ILLEGAL_GENERATION
    assert beat(MemberId="x", GenerationId=0) == UNKNOWN_MEMBER_ID
    if version >= 3:
        assert beat(GroupInstanceId="s") == UNKNOWN_MEMBER_ID
    with Connection(port) as other:
        other.send("JoinGroup", 3, **join_fields(group))
        wait_for(lambda: beat() == REBALANCE_IN_PROGRESS, "the rebalance")


@every("LeaveGroup")
def test_leave(c, group, version):
    def leave(group, *members):
        if version < 3:
            return [c.call("LeaveGroup", version, GroupId=group, MemberId=m)["ErrorCode"] for m, _ in members]
        answer = c.call("LeaveGroup", version, GroupId=group, Members=[{"MemberId": m, "GroupInstanceId": s} for m, s in members])
        if answer["ErrorCode"]:
            assert answer["Members"] == []
            return [answer["ErrorCode"]]
        assert [(m["MemberId"], m["GroupInstanceId"]) for m in answer["Members"]] == list(members)
        return [m["ErrorCode"] for m in answer["Members"]]

    assert leave("no-such-group", ("m", None)) == [UNKNOWN_MEMBER_ID]
    assert leave("", ("m", None)) == [INVALID_GROUP_ID]
    member, _ = stable(c, group)
    assert leave(group, ("x", None), (member, None), (member, None)) == [UNKNOWN_MEMBER_ID, NONE, UNKNOWN_MEMBER_ID]
    assert c.call("DescribeGroups", 0, Groups=[group])["Groups"][0]["GroupState"] == "Empty"
    given = c.call("JoinGroup", 4, **join_fields(group))["MemberId"]
    assert leave(group, (given, None), (given, None)) == [NONE, UNKNOWN_MEMBER_ID]
    if version >= 3:
        member, _ = stable(c, group, 5, GroupInstanceId="s")
        assert leave(group, ("x", "s"), (member, "t"), ("", "t"), ("", None), ("", "s")) == [
            FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, NONE]


@pytest.mark.parametrize("version", range(5, 10))
def test_static_member(c, port, group, version):
    member, generation = stable(c, group, version, GroupInstanceId="s")
    assert member.startswith("s-")
    # under its own id: the only member leads, and a leader that joins again wants a rebalance
    again = join(c, version, group, GroupInstanceId="s", MemberId=member)
    assert (again["ErrorCode"], again["GenerationId"]) == (NONE, generation + 1)
    assert sync(c, 3, group, member, generation + 1, [(member, b"mine")])["ErrorCode"] == NONE
    # restarted: no rebalance
    back = join(c, version, group, GroupInstanceId="s")
    assert (back["ErrorCode"], back["GenerationId"]) == (NONE, generation + 1)
    assert back["MemberId"] not in ("", member)
    if version >= 9:
        assert back["SkipAssignment"] and back["Leader"] == back["MemberId"]
        assert [(m["MemberId"], m["GroupInstanceId"]) for m in back["Members"]] == [(back["MemberId"], "s")]
    else:
        assert back["Leader"] == member and back["Members"] == []
    assert sync(c, 3, group, back["MemberId"], generation + 1)["Assignment"] == b"mine"
    # the double is fenced
    for api, more in [("Heartbeat", {}), ("SyncGroup", {}), ("JoinGroup", join_fields(group))]:
        fields = {**more, "GroupId": group, "GenerationId": generation + 1, "MemberId": member, "GroupInstanceId": "s"}
        assert c.call(api, {"Heartbeat": 3, "SyncGroup": 3, "JoinGroup": version}[api], **fields)["ErrorCode"] == FENCED_INSTANCE_ID
    assert commit(c, 7, group, member, generation + 1, GroupInstanceId="s") == FENCED_INSTANCE_ID
    assert commit(c, 7, group, back["MemberId"], generation + 1, GroupInstanceId="s") == NONE


@pytest.mark.parametrize("version", versions("OffsetCommit")[1:])
def test_commit(c, group, version):
    assert commit(c, version, group, "m", 1) == ILLEGAL_GENERATION
    assert commit(c, version, group) == NONE
    assert commit(c, version, group, topic="no-such-topic") == UNKNOWN_TOPIC
    assert commit(c, version, group, partition=7) == UNKNOWN_TOPIC
    assert commit(c, version, group, metadata="x" * 4097) == OFFSET_METADATA_TOO_LARGE
    assert commit(c, version, group, offset=6, metadata="x" * 4096) == NONE
    assert fetch(c, 1, group)[1][TOPIC, 0]["CommittedOffset"] == 6
    member, generation = stable(c, group)
    assert commit(c, version, group) == UNKNOWN_MEMBER_ID
    assert commit(c, version, group, "x", generation) == UNKNOWN_MEMBER_ID
    assert commit(c, version, group, member, generation - 1) == ILLEGAL_GENERATION
    assert commit(c, version, group, member, -1) == ILLEGAL_GENERATION
    assert commit(c, version, group, member, generation, offset=9) == NONE
    assert fetch(c, 1, group)[1][TOPIC, 0]["CommittedOffset"] == 9
    if version >= 7:
        assert commit(c, version, group, member, generation, GroupInstanceId="s") == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("OffsetFetch")[1:])
def test_fetch(c, group, version):
    error, found = fetch(c, version, group)
    nothing = found[TOPIC, 0]
    assert (error or NONE, nothing["ErrorCode"], nothing["CommittedOffset"], nothing["Metadata"]) == (NONE, NONE, -1, "")
    commit(c, 6, group, offset=5, metadata="note")
    commit(c, 6, group, offset=8, partition=1)
    error, found = fetch(c, version, group, [(TOPIC, [0, 1]), ("no-such-topic", [3])])
    assert (found[TOPIC, 0]["CommittedOffset"], found[TOPIC, 0]["Metadata"], found[TOPIC, 1]["CommittedOffset"]) == (5, "note", 8)
    assert found[TOPIC, 0].get("CommittedLeaderEpoch", -1) == -1
    assert (found["no-such-topic", 3]["CommittedOffset"], found["no-such-topic", 3]["ErrorCode"]) == (-1, NONE)
    if version >= 2:
        error, found = fetch(c, version, group, None)
        assert error == NONE and sorted(found) == [(TOPIC, 0), (TOPIC, 1)]
    if version >= 7:
        assert fetch(c, version, group, RequireStable=True)[1][TOPIC, 0]["CommittedOffset"] == 5


@pytest.mark.parametrize("version", [8, 9])
def test_fetch_several_groups(c, group, version):
    commit(c, 6, group, offset=5)
    commit(c, 6, group + "2", offset=7)
    named = [{"Name": TOPIC, "PartitionIndexes": [0]}]
    answer = c.call("OffsetFetch", version, Groups=[{"GroupId": group, "Topics": named}, {"GroupId": group + "2", "Topics": None},
                                                    {"GroupId": "no-such-group", "Topics": None}])["Groups"]
    assert [g["GroupId"] for g in answer] == [group, group + "2", "no-such-group"]
    assert [[p["CommittedOffset"] for t in g["Topics"] for p in t["Partitions"]] for g in answer] == [[5], [7], []]


def test_commit_and_fetch_version_0_keep_offsets_in_zookeeper(c, group):
    assert fetch(c, 0, group)[1][TOPIC, 0]["ErrorCode"] == UNKNOWN_TOPIC
    assert commit(c, 0, group, offset=12) == NONE
    assert commit(c, 0, group, offset=13) == NONE
    found = fetch(c, 0, group)[1][TOPIC, 0]
    assert (found["ErrorCode"], found["CommittedOffset"], found["Metadata"]) == (NONE, 13, "")
    assert fetch(c, 1, group)[1][TOPIC, 0]["CommittedOffset"] == -1
    assert commit(c, 0, group, metadata="x" * 4097) == OFFSET_METADATA_TOO_LARGE
    assert fetch(c, 0, group, [("no-such-topic", [0])])[1]["no-such-topic", 0]["ErrorCode"] == UNKNOWN_TOPIC


@every("DescribeGroups")
def test_describe(c, group, version):
    describe = lambda **more: c.call("DescribeGroups", version, Groups=[group], **more)["Groups"][0]
    dead = describe()
    assert (dead["ErrorCode"], dead["GroupState"], dead["ProtocolType"], dead["Members"]) == (NONE, "Dead", "", [])
    joined = join(c, 5, group, GroupInstanceId="s")
    member = joined["MemberId"]
    half = describe()
    assert (half["GroupState"], half["ProtocolType"], half["ProtocolData"]) == ("CompletingRebalance", "consumer", "")
    assert (half["Members"][0]["MemberMetadata"], half["Members"][0]["MemberAssignment"]) == (b"", b"")
    sync(c, 3, group, member, 1, [(member, b"mine")])
    full = describe(IncludeAuthorizedOperations=version >= 3)
    assert (full["GroupState"], full["ProtocolType"], full["ProtocolData"]) == ("Stable", "consumer", "range")
    [shown] = full["Members"]
    assert (shown["MemberId"], shown["ClientId"], shown["ClientHost"]) == (member, "proto", "/127.0.0.1")
    assert (shown["MemberMetadata"], shown["MemberAssignment"]) == (SUBSCRIPTION, b"mine")
    assert shown.get("GroupInstanceId", "s") == "s"
    if version >= 3:
        assert full["AuthorizedOperations"] == 1 << 3 | 1 << 6 | 1 << 8
        assert describe()["AuthorizedOperations"] == -2147483648


@every("ListGroups")
def test_list(c, group, version):
    member, _ = stable(c, group)
    commit(c, 6, group + "-simple")
    mine = lambda **more: {g["GroupId"]: g for g in c.call("ListGroups", version, **more)["Groups"] if g["GroupId"].startswith(group)}
    listed = mine()
    assert (listed[group]["ProtocolType"], listed[group + "-simple"]["ProtocolType"]) == ("consumer", "")
    if version >= 4:
        assert (listed[group]["GroupState"], listed[group + "-simple"]["GroupState"]) == ("Stable", "Empty")
        assert list(mine(StatesFilter=["sTABLE"])) == [group]
        assert len(mine(StatesFilter=["Empty", "Stable"])) == 2
        assert not mine(StatesFilter=["PreparingRebalance"])
        assert not mine(StatesFilter=["Nonsense"])
    if version >= 5:
        assert listed[group]["GroupType"] == "classic"
        assert len(mine(TypesFilter=["Classic"])) == 2
        assert not mine(TypesFilter=["consumer"])


@every("DeleteGroups")
def test_delete_groups(c, group, version):
    member, _ = stable(c, group)
    commit(c, 6, group + "-simple")
    names = [group, group + "-simple", "no-such-group", group]
    results = c.call("DeleteGroups", version, GroupsNames=names)["Results"]
    assert {r["GroupId"]: r["ErrorCode"] for r in results} == {
        group: NON_EMPTY_GROUP, group + "-simple": NONE, "no-such-group": GROUP_ID_NOT_FOUND}
    assert len(results) == 3
    assert fetch(c, 1, group + "-simple")[1][TOPIC, 0]["CommittedOffset"] == -1
    c.call("LeaveGroup", 0, GroupId=group, MemberId=member)
    [gone] = c.call("DeleteGroups", version, GroupsNames=[group])["Results"]
    assert gone["ErrorCode"] == NONE
    assert c.call("DescribeGroups", 0, Groups=[group])["Groups"][0]["GroupState"] == "Dead"


def test_delete_offsets(c, group):
    def delete(*topics, group=group):
        answer = c.call("OffsetDelete", 0, GroupId=group, Topics=[{"Name": t, "Partitions": [{"PartitionIndex": p}]} for t, p in topics])
        return answer["ErrorCode"], {(t["Name"], p["PartitionIndex"]): p["ErrorCode"] for t in answer["Topics"] for p in t["Partitions"]}

    assert delete((TOPIC, 0), group="no-such-group") == (GROUP_ID_NOT_FOUND, {})
    assert delete((TOPIC, 0), group="") == (INVALID_GROUP_ID, {})
    member, generation = stable(c, group)
    commit(c, 6, group, member, generation)
    assert delete((TOPIC, 0), ("no-such-topic", 0)) == (NONE, {(TOPIC, 0): GROUP_SUBSCRIBED_TO_TOPIC, ("no-such-topic", 0): UNKNOWN_TOPIC})
    c.call("LeaveGroup", 0, GroupId=group, MemberId=member)
    assert delete((TOPIC, 0), (TOPIC, 1)) == (NONE, {(TOPIC, 0): NONE, (TOPIC, 1): NONE})
    assert c.call("DescribeGroups", 0, Groups=[group])["Groups"][0]["GroupState"] == "Dead"


def test_new_consumer_groups_are_refused(c, group):
    assert c.call("ConsumerGroupHeartbeat", 0, GroupId=group)["ErrorCode"] == UNSUPPORTED_VERSION
    [described] = c.call("ConsumerGroupDescribe", 0, GroupIds=[group])["Groups"]
    assert (described["ErrorCode"], described["GroupId"]) == (UNSUPPORTED_VERSION, group)


def test_two_members_rebalance(c, port, group):
    """One joins a stable group; the follower waits for the leader's assignment."""
    first, generation = stable(c, group)
    with Connection(port, client_id="proto") as other:
        given = other.call("JoinGroup", 4, **join_fields(group))["MemberId"]
        other.send("JoinGroup", 4, **join_fields(group, MemberId=given))
        beat = lambda: c.call("Heartbeat", 3, GroupId=group, GenerationId=generation, MemberId=first)["ErrorCode"]
        wait_for(lambda: beat() == REBALANCE_IN_PROGRESS, "the rebalance")
        assert sync(c, 3, group, first, generation)["ErrorCode"] == REBALANCE_IN_PROGRESS
        # offsets of the old generation are still taken
        assert commit(c, 7, group, first, generation, offset=77) == NONE
        mine = join(c, 4, group, MemberId=first)
        his = other.receive("JoinGroup", 4)
        assert (mine["GenerationId"], his["GenerationId"], his["Leader"]) == (generation + 1, generation + 1, first)
        assert sorted(m["MemberId"] for m in mine["Members"]) == sorted([first, given]) and his["Members"] == []
        assert commit(c, 7, group, first, generation + 1) == REBALANCE_IN_PROGRESS
        other.send("SyncGroup", 3, GroupId=group, GenerationId=generation + 1, MemberId=given)
        assert sync(c, 3, group, first, generation + 1, [(given, b"his"), (first, b"mine")])["Assignment"] == b"mine"
        assert other.receive("SyncGroup", 3)["Assignment"] == b"his"
        # the follower leaves while the leader waits
        other.call("LeaveGroup", 0, GroupId=group, MemberId=given)
        alone = join(c, 4, group, MemberId=first)
        assert (alone["GenerationId"], len(alone["Members"])) == (generation + 2, 1)
