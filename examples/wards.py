"""A hospital group without a common operator: wards share vital signs, nobody runs a broker, keys decide who reads.

    python examples/wards.py

Three hospitals share one topic and no infrastructure. Every ward's process is a peer: it publishes, it subscribes, and
it carries events for others that it cannot open. What a ward may publish and read is a right with a template, and the
topic's key center issues keys for that and for nothing else. A ward that leaves is out with the next epoch.
"""

from __future__ import annotations

import tempfile

from sealcast import Event, EventRejected, Publisher, Realm, Rejected, Right, Schema, Subscriber, carry

SCHEMA = {
    "attributes": [
        {"name": "hospital", "type": "string", "max_length": 5},
        {"name": "ward", "type": "string", "max_length": 6},
        {"name": "pulse", "type": "int", "min": 0, "max": 255},
    ]
}
#: Each ward publishes its own patients; these are what the others may read of them, and what they ask for.
WARDS = {
    "north-icu": ("hospital=north", "pulse < 45 OR pulse > 170"),
    "south-er": ("*", "hospital = 'south' AND ward LIKE 'er%'"),
    "coroner": ("ward=icu", "pulse = 0"),
}
READINGS = [
    ("north-icu", {"hospital": "north", "ward": "icu", "pulse": 41}),
    ("north-icu", {"hospital": "north", "ward": "icu", "pulse": 0}),
    ("south-er", {"hospital": "south", "ward": "er-2", "pulse": 182}),
]


def publish(realm: Realm) -> None:
    for ward, reading in READINGS:
        with Publisher(realm, "vitals", as_=ward) as monitor:
            monitor.publish([Event(reading, b"waveform")])
    carry(realm)  # what `sealcast peer run` does all day, here once for all peers whose keys are on this machine


def show(realm: Realm) -> None:
    for ward in WARDS:
        try:
            with Subscriber(realm, "vitals", as_=ward) as reader:
                pulses = [f"{event.attributes['ward']} {event.attributes['pulse']}" for event in reader]
                reader.ack()
        except Rejected as refusal:
            print(f"  {ward:<9} is refused: {refusal}")
        else:
            print(f"  {ward:<9} opens {', '.join(pulses) or 'nothing'}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        realm = Realm.create(f"{directory}/wards")
        realm.create_topic("vitals", Schema.from_json(SCHEMA), protection="attribute", access="granted")
        realm.enrol_many(WARDS)
        for ward, (may_read, _) in WARDS.items():
            realm.grant("vitals", ward, [Right.SUBSCRIBE], template=may_read)
        realm.grant("vitals", "north-icu", [Right.PUBLISH], template="hospital=north, ward=icu")
        realm.grant("vitals", "south-er", [Right.PUBLISH], template="hospital=south")
        for ward, (_, wants) in WARDS.items():
            realm.subscribe("vitals", ward, wants)

        print("Every ward opens what it asked for, within what it may read:")
        publish(realm)
        show(realm)

        try:
            with Publisher(realm, "vitals", as_="south-er") as monitor:
                monitor.publish([Event({"hospital": "north", "ward": "icu", "pulse": 70})])
        except EventRejected as refusal:
            print(f"South cannot publish for north: {refusal}")

        print("After the coroner left:")
        realm.revoke("vitals", "coroner", [Right.SUBSCRIBE])
        publish(realm)
        show(realm)


if __name__ == "__main__":
    main()
