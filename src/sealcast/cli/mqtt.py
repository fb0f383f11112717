"""sealcast mqtt: sealed topics on MQTT brokers. Each command has a file of its own, `cli/mqtt_*.py`."""

from __future__ import annotations

from sealcast.cli import mqtt_bridge, mqtt_broker, mqtt_table, talk

app = talk.group("Carry sealed topics over MQTT.")
app.command("bridge", epilog=mqtt_bridge.EXAMPLE, daemon=True)(mqtt_bridge.bridge)
app.command("broker", epilog=mqtt_broker.EXAMPLE, daemon=True)(mqtt_broker.broker)
app.command("table", epilog=mqtt_table.EXAMPLE)(mqtt_table.table)
