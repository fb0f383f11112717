"""sealcast mqtt: sealed topics on MQTT brokers. Each command has a file of its own, `cli/mqtt_*.py`."""

from __future__ import annotations

from sealcast.cli import mqtt_table, talk

app = talk.group("Carry sealed topics over MQTT.")
app.command("table", epilog="Example: sealcast mqtt table /var/lib/mosquitto/sealcast.table --watch")(mqtt_table.table)
