"""Hospital telemetry: monitors publish, wards read their own patients, and who lost its right reads no more.

    python examples/hospital.py

Monitors publish vital signs. Each ward's screen subscribes to its own ward, and the emergency team to alarming values
of any ward. Rights are granted, not open to all members: whoever has no right gets nothing, whatever it asks for.
"""

from __future__ import annotations

import tempfile

from sealcast import Event, Publisher, Realm, Rejected, Right, Schema, Subscriber, run

SCHEMA = {
    "attributes": [
        {"name": "ward", "type": "string"},
        {"name": "patient", "type": "int", "min": 0, "max": 100_000},
        {"name": "pulse", "type": "int", "min": 0, "max": 300},
        {"name": "oxygen", "type": "decimal", "min": 0, "max": 100, "step": "0.1"},
    ]
}
READINGS = [
    {"ward": "cardiology", "patient": 11, "pulse": 72, "oxygen": "98.1"},
    {"ward": "cardiology", "patient": 12, "pulse": 141, "oxygen": "93.4"},
    {"ward": "maternity", "patient": 31, "pulse": 80, "oxygen": "99.0"},
    {"ward": "maternity", "patient": 32, "pulse": 88, "oxygen": "87.5"},
]
FILTERS = {
    "cardiology-screen": "ward = 'cardiology'",
    "maternity-screen": "ward = 'maternity'",
    "emergency-team": "pulse > 130 OR oxygen < 90",
}


def publish(realm: Realm) -> None:
    with Publisher(realm, "vitals", as_="monitors") as monitors:
        monitors.publish([Event(reading, b"waveform") for reading in READINGS])


def show(realm: Realm) -> None:
    for reader in FILTERS:
        try:
            with Subscriber(realm, "vitals", as_=reader) as subscriber:
                patients = [event.attributes["patient"] for event in subscriber]
                subscriber.ack()  # the next reading begins after these
        except Rejected as refusal:
            print(f"  {reader:<18} is refused: {refusal}")
        else:
            print(f"  {reader:<18} reads patients {patients}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        realm = Realm.create(f"{directory}/hospital")
        realm.create_topic("vitals", Schema.from_json(SCHEMA), access="granted")
        realm.enrol_many(["monitors", *FILTERS])
        realm.grant("vitals", "monitors", [Right.PUBLISH])
        for reader, text in FILTERS.items():
            realm.grant("vitals", reader, [Right.SUBSCRIBE])
            realm.subscribe("vitals", reader, text)

        print("Everyone reads what it asked for:")
        publish(realm)
        run(realm, once=True)
        show(realm)

        print("After the emergency team lost its right:")
        realm.revoke("vitals", "emergency-team", [Right.SUBSCRIBE])
        publish(realm)
        run(realm, once=True)
        show(realm)


if __name__ == "__main__":
    main()
