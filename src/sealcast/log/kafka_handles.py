"""The handles of librdkafka that carriers use. A fork leaves them alone.

A handle works by threads of its own, and a child process has none of them. Whatever ends it there, a garbage collection
or the end of the program, has librdkafka tidy up after threads that are gone: it aborts the child, or waits for ever.
So a child gives back no handle that its parent made. It has one reference too many to each, until the process ends.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Final, TypeVar

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient


class KafkaConsumer(Consumer):
    """A consumer that can be referred to weakly, as those of C cannot."""


class KafkaProducer(Producer):
    """A producer that can be referred to weakly, as those of C cannot."""


H = TypeVar("H", KafkaConsumer, KafkaProducer, AdminClient)
#: What this process has, by weak references: also what is garbage already, and would be collected in the child.
_HANDLES: Final = weakref.WeakSet[KafkaConsumer | KafkaProducer | AdminClient]()


def noted(handle: H) -> H:
    """The handle, which no child of this process ends."""
    _HANDLES.add(handle)
    return handle


def _leave_alone() -> None:
    for handle in list(_HANDLES):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


os.register_at_fork(after_in_child=_leave_alone)
