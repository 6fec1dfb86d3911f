"""Partitions of strict keyspaces that move to other processes, and what is left after more are lost than may be."""

import re
import shutil
import time

import redis

from cluster import Cluster
from harness import wait_until
from test_histories import bench, check

PARTITION = re.compile(r"^(\d+): (\w+) in view (\d+), epoch (\d+) on ([\d,]+),")


def partitions(node) -> dict[int, tuple[str, int, list[int]]]:
    """What a process says of its replicas: by partition, what it does, its epoch, the processes of that."""
    info = node.client().execute_command("KEYSPACE", "INFO", "default")
    if not isinstance(info, dict):
        info = dict(zip(info[::2], info[1::2]))
    found = {}
    for line in info["partitions_here"]:
        partition, status, _, epoch, processes = PARTITION.match(line).groups()
        found[int(partition)] = (status, int(epoch), [int(process) for process in processes.split(",")])
    return found


def await_place(node, partition: int, processes: list[int], patience: float = 30.0) -> None:
    def there() -> bool:
        status, _, present = partitions(node).get(partition, ("", 0, []))
        return status == "Normal" and sorted(present) == sorted(processes)

    wait_until(there, timeout=patience, every=0.1)


def answered(action):
    """What an action returns; nothing while the partition is out of service."""
    try:
        return action()
    except redis.exceptions.RedisError:
        return None


def test_replicas_of_a_dead_process_move_to_another_under_load(tmp_path):
    history = tmp_path / "retwis.jsonl"
    with Cluster(4, 1, "--replicas", "3", "--partitions", "2", "--durability", "always") as cluster:
        # Partition 0 is on processes 1, 2 and 3, partition 1 on 2, 3 and 4.
        spare = cluster["d/1"]
        # Clients use the two processes that live to the end.
        lasting = [cluster["a/1"], spare]
        running = bench(lasting, "retwis", history, "--clients", "6", "--keys", "300", "--txn", "--seconds", "14")
        time.sleep(3)
        cluster.do("kill b/1")
        time.sleep(1)
        client = cluster["a/1"].client()
        assert client.execute_command("KEYSPACE", "PLACE", "default", "0", "1", "3", "4") in ("OK", True)
        await_place(spare, 0, [1, 3, 4])
        assert client.execute_command("KEYSPACE", "PLACE", "default", "1", "1", "3", "4") in ("OK", True)
        await_place(cluster["a/1"], 1, [1, 3, 4])
        wait_until(lambda: client.info("cluster")["strict_default"].get("epoch_0") == 1)
        time.sleep(1)
        # The dead one was replaced: a second failure is survived.
        cluster.do("kill c/1")
        output, errors = running.communicate(timeout=120)
        assert running.returncode == 0, errors
        assert check(history, "strict-serializable")["transactions"] > 50
        client.set("after", "both")
        # A process that starts again finds the group, though two of its first three members are dead.
        cluster.do("kill d/1", "restart d/1")
        wait_until(lambda: answered(lambda: spare.client().get("after")) == "both")
        # And who was replaced learns that it is not needed.
        cluster.do("restart b/1")
        wait_until(lambda: answered(lambda: cluster["b/1"].client().get("after")) == "both")
        assert partitions(cluster["b/1"])[0][0] == "Outside"


def test_what_cannot_be_placed_is_refused():
    with Cluster(2, 2, "--replicas", "3") as cluster:
        client = cluster["a/1"].client()
        for command, reason in [
            ("KEYSPACE PLACE nowhere 0 1", "no keyspace"),
            ("KEYSPACE PLACE default 9 1", "partitions 0 to 1"),
            ("KEYSPACE PLACE default 0 1 2", "1, 3, 5"),
            ("KEYSPACE PLACE default 0 1 1 2", "1, 3, 5"),
            ("KEYSPACE PLACE default 0 1 2 9", "no process 9"),
            ("KEYSPACE PLACE default x 1", "is a number"),
            ("KEYSPACE RECOVER default 0 PLEASE", "ACCEPT-LOSS"),
        ]:
            try:
                answer = client.execute_command(*command.split())
            except redis.exceptions.ResponseError as error:
                answer = str(error)
            assert reason in str(answer), (command, answer)


def test_two_of_five_go_on_when_three_are_lost_for_good():
    with Cluster(5, 1, "--partitions", "1", "--replicas", "5", "--durability", "always") as cluster:
        first, second = cluster["a/1"].client(), cluster["b/1"].client()
        for number in range(25):
            first.set(f"key:{number}", number)
        time.sleep(1)
        # What follows the first process never hears of; nobody repeats it for so long.
        cluster.do("kill a/1")
        for number in range(25, 50):
            second.set(f"key:{number}", number)
        time.sleep(3)
        cluster.do("kill c/1", "kill d/1", "kill e/1", "restart a/1")
        first = cluster["a/1"].client()
        recover = ("KEYSPACE", "RECOVER", "default", "0", "ACCEPT-LOSS", "WITH")
        for process in ("1", "9"):
            try:
                first.execute_command(*recover, process)
                raise AssertionError("it is no other process of the group")
            except redis.exceptions.ResponseError as error:
                assert "beside this one" in str(error), error
        report = first.execute_command(*recover, "2")
        assert any("those of [2]" in line for line in report), report
        wait_until(lambda: partitions(cluster["a/1"])[0][1] >= 65_536)
        wait_until(lambda: answered(lambda: first.set("together", "1")))
        assert [first.get(f"key:{number}") for number in range(50)] == [str(number) for number in range(50)]
        wait_until(lambda: partitions(cluster["b/1"])[0][0] == "Outside")


def test_one_of_three_goes_on_when_two_are_lost_for_good():
    with Cluster(3, 1, "--partitions", "1", "--durability", "always") as cluster:
        survivor = cluster["a/1"].client()
        for number in range(50):
            survivor.set(f"key:{number}", number)
        # Everybody has everything: what is lost later cannot be what was acknowledged by these.
        time.sleep(2)
        for name in ("b/1", "c/1"):
            cluster.do(f"kill {name}")
            folder = cluster.folder / "data" / name.replace("/", "-")
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != "cluster.json":
                    path.unlink()
        cluster.do("restart b/1", "restart c/1")
        time.sleep(3)
        assert partitions(cluster["b/1"])[0][0] == "Recovering"
        try:
            survivor.set("lost", "quorum")
            raise AssertionError("nobody can answer with one replica of three")
        except redis.exceptions.RedisError:
            pass
        for name in ("b/1", "c/1"):
            try:
                cluster[name].client().execute_command("KEYSPACE", "RECOVER", "default", "0", "ACCEPT-LOSS")
                raise AssertionError("it has forgotten everything")
            except redis.exceptions.ResponseError as error:
                assert "forgotten" in str(error), error
        report = survivor.execute_command("KEYSPACE", "RECOVER", "default", "0", "ACCEPT-LOSS")
        print("\n".join(report))
        assert any("not known" in line for line in report) and any("undecided" in line for line in report)
        epoch = partitions(cluster["a/1"])[0][1]
        assert epoch >= 65_536
        wait_until(lambda: answered(lambda: survivor.set("alone", "1")))
        assert [survivor.get(f"key:{number}") for number in range(50)] == [str(number) for number in range(50)]
        # The others have learned that their epoch is over, and join again.
        wait_until(lambda: partitions(cluster["b/1"])[0][0] == "Outside")
        wait_until(lambda: partitions(cluster["c/1"])[0][0] == "Outside")
        survivor.execute_command("KEYSPACE", "PLACE", "default", "0", "1", "2", "3")
        for name in ("a/1", "b/1", "c/1"):
            await_place(cluster[name], 0, [1, 2, 3])
            assert partitions(cluster[name])[0][1] > epoch
        cluster.do("kill a/1")
        client = cluster["b/1"].client()
        wait_until(lambda: answered(lambda: client.get("key:49")) == "49")
        assert client.get("alone") == "1"
