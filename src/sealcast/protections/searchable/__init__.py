"""The `searchable` protection (paper 002): brokers match ciphertexts and read none. See README.md."""
