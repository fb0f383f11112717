"""Market data: an exchange publishes ticks, and traders read the slices that they subscribed to.

    python examples/market.py

Beside the four traders, a crowd of readers watches thresholds. The last line says what group keys save: how many
deliveries were made, and how many encryptions they took.
"""

from __future__ import annotations

import random
import tempfile

from sealcast import Event, EventRejected, Publisher, Realm, Schema, Subscriber, run

SCHEMA = {
    "attributes": [
        {"name": "symbol", "type": "string", "max_length": 8},
        {"name": "price", "type": "decimal", "min": 0, "max": 1_000, "step": "0.01"},
        {"name": "size", "type": "int", "min": 1, "max": 100_000},
    ]
}
TRADERS = {
    "alice": "symbol = 'IBM' AND price < 120",
    "bob": "symbol IN ('IBM', 'HPQ') AND size >= 500",
    "carol": "symbol LIKE 'A%' AND price BETWEEN 100 AND 200",
    "dave": "price > 999",
}
CROWD = {f"reader-{number}": f"price > {20 * (number % 10)}" for number in range(60)}


def ticks(count: int) -> list[Event]:
    """The same ticks on every run."""
    day = random.Random(2026)
    return [
        Event(
            {
                "symbol": day.choice(["AAPL", "AMZN", "HPQ", "IBM"]),
                "price": f"{day.uniform(20, 220):.2f}",
                "size": day.randint(1, 1_000),
            },
            f"tick {number}".encode(),
        )
        for number in range(count)
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        realm = Realm.create(f"{directory}/market")
        realm.create_topic("ticks", Schema.from_json(SCHEMA), access="members")
        realm.enrol_many(["nyse", *TRADERS, *CROWD])
        for name, text in {**TRADERS, **CROWD}.items():
            realm.subscribe("ticks", name, text)

        with Publisher(realm, "ticks", as_="nyse") as nyse:
            nyse.publish(ticks(1_000))
            try:
                nyse.publish([Event({"symbol": "IBM", "price": "118.505", "size": 1})])
            except EventRejected as refusal:
                print(f"refused: {refusal}")
        totals = run(realm, once=True)

        for trader, text in TRADERS.items():
            with Subscriber(realm, "ticks", as_=trader) as subscriber:
                events = list(subscriber)
            print(f"{trader:<6} {len(events):>4} events where {text}")
        print(f"{totals['deliveries']:,} deliveries took {totals['encryptions']:,} encryptions")


if __name__ == "__main__":
    main()
