#!/usr/bin/env python3
"""A shop that sells at every site while the sites cannot hear each other, and settles what was sold twice afterwards.

    anabranch cluster local --regions 3 --processes 1 --model branch     # then, in each region:
    python shop.py --url redis://127.0.0.1:7001 --keyspace shop stock game=1 extension=1
    python shop.py --url redis://127.0.0.1:7001 --keyspace shop order 1 ada game extension
    python shop.py --url redis://127.0.0.1:7001 --keyspace shop settle

The keyspace has to exist and to be merged by hand: KEYSPACE CREATE shop MODEL branch MERGE manual.

What is stored, one line per key:

    received     hash: item -> how many there ever were
    stock        hash: item -> how many are left           needs      hash: item -> the item that it is of no use without
    orders       hash: order -> JSON {customer, items}     apologies  hash: order -> JSON {customer, items, reason}

Each branch is sequential storage: on it nothing is sold that is not there. What several branches sold together may be
more than there was; only whoever merges sees that, and it knows what was sold on which side (TARDiS, section 5.2 and figure
4). The merge cancels what cannot be delivered, puts it back and apologises: all of that is one state, so nobody ever sees
half of it. shop.lua does the same by itself, as the keyspace's merge handler.
"""

import argparse
import json
import sys
from collections import Counter

import redis


class SoldOut(Exception):
    """There is not enough of an item on this branch."""


class Shop:
    """The application at one site. `client` has one connection, decodes replies, and has chosen the keyspace."""

    def __init__(self, client: redis.Redis):
        self.redis = client

    def add_stock(self, items: dict[str, int]) -> None:
        for item, count in items.items():
            self.redis.hincrby("stock", item, count)
            self.redis.hincrby("received", item, count)

    def require(self, item: str, needed: str) -> None:
        """An item is of no use without another one."""
        self.redis.hset("needs", item, needed)

    def order(self, order: str, customer: str, items: list[str]) -> None:
        """Sells the items, all or none, on the branch where this site is."""
        while True:
            self.redis.execute_command("TXN", "BEGIN")
            try:
                for item, count in Counter(items).items():
                    if int(self.redis.hget("stock", item) or 0) < count:
                        raise SoldOut(item)
                    self.redis.hincrby("stock", item, -count)
                self.redis.hset("orders", order, json.dumps({"customer": customer, "items": items}))
            except SoldOut:
                self.redis.execute_command("TXN", "ABORT")
                raise
            try:
                self.redis.execute_command("TXN", "COMMIT")
                return
            except redis.ResponseError as error:
                if not str(error).startswith("CONFLICT"):
                    raise

    def settle(self) -> list[str] | None:
        """Merges all branches; the orders that had to be cancelled, or None if there was one branch only."""
        try:
            self.redis.execute_command("MERGE", "BEGIN")
        except redis.ResponseError as error:
            if "nothing to merge" in str(error):
                return None
            raise
        # Sold on several branches: the differences add up, perhaps to less than nothing. Orders and apologies have a
        # field each.
        self.redis.execute_command("MERGE", "RESOLVE", "ALL", "NEWEST")
        cancelled = self.cancel_what_is_not_there()
        self.redis.execute_command("MERGE", "COMMIT")
        return cancelled

    def cancel_what_is_not_there(self) -> list[str]:
        stock = {item: int(count) for item, count in self.redis.hgetall("stock").items()}
        needs = self.redis.hgetall("needs")
        orders = {order: json.loads(text) for order, text in self.redis.hgetall("orders").items()}
        cancelled = {}

        def cancel(order: str, reason: str) -> None:
            content = orders.pop(order)
            for item, count in Counter(content["items"]).items():
                stock[item] += count
                self.redis.hincrby("stock", item, count)
            self.redis.hdel("orders", order)
            self.redis.hset("apologies", order, json.dumps(content | {"reason": reason}))
            cancelled[order] = content

        for item in sorted(stock):
            # The same choice at whatever site it is made.
            for order in sorted((order for order in orders if item in orders[order]["items"]), reverse=True):
                if stock[item] >= 0:
                    break
                cancel(order, f"{item} was sold out")
        # A customer who does not get the game is spared its extension.
        for order, content in sorted(orders.items()):
            customer = content["customer"]
            lost = items_of(customer, cancelled)
            kept = items_of(customer, orders)
            useless = [item for item in content["items"] if needs.get(item) in lost - kept]
            if useless:
                cancel(order, f"{useless[0]} is of no use without {needs[useless[0]]}")
        return list(cancelled)


def items_of(customer: str, orders: dict[str, dict]) -> set[str]:
    """What a customer has in these orders."""
    return {item for order in orders.values() if order["customer"] == customer for item in order["items"]}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A shop whose sites sell while they cannot hear each other.")
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--keyspace", default="shop")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("stock").add_argument("items", nargs="+", metavar="ITEM=COUNT")
    ordering = commands.add_parser("order")
    ordering.add_argument("order")
    ordering.add_argument("customer")
    ordering.add_argument("items", nargs="+")
    commands.add_parser("settle")
    given = parser.parse_args(arguments)
    client = redis.Redis.from_url(given.url, decode_responses=True, single_connection_client=True)
    client.execute_command("KEYSPACE", "USE", given.keyspace)
    shop = Shop(client)
    if given.command == "stock":
        shop.add_stock({item: int(count) for item, count in (pair.split("=") for pair in given.items)})
    elif given.command == "order":
        try:
            shop.order(given.order, given.customer, given.items)
            print("sold")
        except SoldOut as item:
            sys.exit(f"{item} is sold out")
    else:
        cancelled = shop.settle()
        print("one branch, nothing to settle" if cancelled is None else f"cancelled: {', '.join(cancelled) or 'nothing'}")


if __name__ == "__main__":
    main()
