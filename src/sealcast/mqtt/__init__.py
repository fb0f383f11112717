"""Topics under the `searchable` protection on MQTT brokers, which match their events without reading them.

table      what the plug-in for mosquitto matches with: one file, written for a broker and read by the plug-in
"""
