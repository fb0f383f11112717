"""The `payload` protection: brokers match on attributes, and only readers open payloads (paper 004). See README.md."""
