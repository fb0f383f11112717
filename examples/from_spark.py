"""From Spark: a job publishes a DataFrame, and another reads what a subscriber may read.

    python examples/from_spark.py

`format("sealcast")` is a data source for batches and for streams. A worker reads the key file of the entity that `as`
names. It never sees a key of the broker.
"""

from __future__ import annotations

import tempfile

from sealcast import Realm, Schema, run
from sealcast.pipeline.session import session

SCHEMA = {
    "attributes": [
        {"name": "vehicle", "type": "string"},
        {"name": "speed", "type": "int", "min": 0, "max": 400},
    ]
}
ROWS = [("truck-1", 82, b"50.1,8.6"), ("truck-2", 131, b"48.1,11.5"), ("van-7", 140, b"52.5,13.4")]


def main() -> None:
    spark = session("local[2]", short_lived=True)  # your own session works too: sealcast.pipeline.register(spark)
    with tempfile.TemporaryDirectory() as directory:
        realm = Realm.create(f"{directory}/fleet")
        realm.create_topic("positions", Schema.from_json(SCHEMA), access="members")
        realm.enrol_many(["fleet", "dispatcher"])
        realm.subscribe("positions", "dispatcher", "speed > 120 AND vehicle LIKE 'truck-%'")
        topic = {"realm": str(realm.paths.root), "topic": "positions"}

        rows = spark.createDataFrame(ROWS, "vehicle string, speed int, payload binary")
        rows.write.format("sealcast").options(**topic, **{"as": "fleet"}).mode("append").save()
        run(realm, once=True, spark=spark)

        opened = spark.read.format("sealcast").options(**topic, **{"as": "dispatcher"}).load()
        for row in opened.select("publisher", "vehicle", "speed", "payload").collect():
            print(f"{row.publisher}: {row.vehicle} drives {row.speed} km/h at {row.payload.decode()}")


if __name__ == "__main__":
    main()
