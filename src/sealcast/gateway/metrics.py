"""What a gateway tells about itself, for Prometheus. Names are stable; OpenTelemetry's habits (what, unit, `total`).

Labels are routes, numbers of HTTP, topics and brokers. Nothing is ever labelled by who asks: a metrics page is read by
more people than may know who talks to whom.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sealcast.broker.lag import LagCollector, Lags

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60)


class GatewayMetrics:
    """The metrics of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self._requests = counter("sealcast_gateway_requests", "Requests answered", ["route", "status"])
        self._seconds = Histogram(
            "sealcast_gateway_request_duration_seconds",
            "From a request's head to the end of its answer, waiting included",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._received = counter("sealcast_gateway_received_bytes", "Bodies of requests", ["route"])
        self._sent = counter("sealcast_gateway_sent_bytes", "Bodies of answers", ["route"])
        self._frames = counter("sealcast_gateway_frames", "Frames that were answered as durable", ["topic", "broker"])
        self._refused = counter("sealcast_gateway_refused_connections", "Connections that were refused", ["reason"])
        self.connections = gauge("sealcast_gateway_connections", "Connections whose handshake is over")
        self.silent = gauge("sealcast_gateway_silent_connections", "Connections that have said nothing yet")
        self.waiting = gauge("sealcast_gateway_waiting_requests", "Requests that wait for something to come")
        self.version = gauge("sealcast_gateway_registry_version", "Newest version that was seen")

    def answered(self, route: str, status: int, seconds: float, received: int, sent: int) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        self._received.labels(route).inc(received)
        self._sent.labels(route).inc(sent)

    def frames(self, topic: str, broker: str, count: int) -> None:
        self._frames.labels(topic, broker).inc(count)

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def lags(self, lags: Lags) -> None:
        """Shows how many frames wait for each broker, as it is when somebody looks."""
        self.registry.register(LagCollector(lags))

    def totals(self) -> dict[str, int]:
        """What a command says at its end."""
        samples = [sample for metric in self.registry.collect() for sample in metric.samples]
        named = {"requests": "requests", "frames": "frames", "refused": "refused_connections"}
        return {
            short: int(sum(s.value for s in samples if s.name == f"sealcast_gateway_{name}_total"))
            for short, name in named.items()
        }

    def value(self, name: str, **labels: str) -> float:
        """A sample, for tests."""
        return self.registry.get_sample_value(name, labels) or 0.0
