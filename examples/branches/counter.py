#!/usr/bin/env python3
"""A counter on branches, merged with the fork point in hand (TARDiS, section 5.2, figure 3).

    python counter.py --url redis://127.0.0.1:7001 --keyspace counters add visits 3
    python counter.py --url redis://127.0.0.1:7001 --keyspace counters merge visits

The keyspace is merged by hand: KEYSPACE CREATE counters MODEL branch MERGE manual. The server's own rule for INCRBY does
the same (MERGE RESOLVE); this shows what an application does that has a rule of its own.
"""

import argparse

import redis


def add(client: redis.Redis, name: str, amount: int) -> int:
    return client.incrby(name, amount)


def merge(client: redis.Redis, name: str) -> int | None:
    """Merges all branches: every branch's difference to the fork point is added to it. None if there is one branch only."""
    try:
        heads = client.execute_command("MERGE", "BEGIN")
    except redis.ResponseError as error:
        if "nothing to merge" in str(error):
            return None
        raise
    cursor, conflicting = "0", []
    while True:
        cursor, keys = client.execute_command("MERGE", "CONFLICTS", cursor)
        conflicting += keys
        if cursor == "0":
            break
    if name in conflicting:
        forks = client.execute_command("MERGE", "FORKS")
        if len(forks) == 1:
            fork = value(client, name, forks[0])
            total = fork + sum(value(client, name, head) - fork for head in heads)
            client.set(name, total)
    # Several fork points (earlier merges crossed), and all other keys, are left to the types' rules.
    client.execute_command("MERGE", "RESOLVE", "ALL", "NEWEST")
    client.execute_command("MERGE", "COMMIT")
    return int(client.get(name) or 0)


def value(client: redis.Redis, name: str, state: str) -> int:
    return int(client.execute_command("MERGE", "GET", name, state) or 0)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A counter on branches.")
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--keyspace", default="counters")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add")
    adding.add_argument("name")
    adding.add_argument("amount", type=int)
    commands.add_parser("merge").add_argument("name")
    given = parser.parse_args(arguments)
    client = redis.Redis.from_url(given.url, decode_responses=True, single_connection_client=True)
    client.execute_command("KEYSPACE", "USE", given.keyspace)
    if given.command == "add":
        print(add(client, given.name, given.amount))
    else:
        total = merge(client, given.name)
        print("one branch, nothing to merge" if total is None else total)


if __name__ == "__main__":
    main()
