"""Tests of the data lifecycle run over the carriers that tests of logs run over."""

from tests.log.conftest import kafka, nats

__all__ = ["kafka", "nats"]
