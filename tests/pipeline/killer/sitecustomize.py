"""Loaded at start by every Python process of a driver whose PYTHONPATH names this directory: death at a chosen write.

KILL_AT is POINT:COUNT:FILE. The process that comes to that point of a commit as the COUNT-th (they are counted in FILE,
since each may be another process) kills the whole session of its driver: JVM, workers, itself.

    before     a batch is staged; the ledger's record is about to be written
    written    the record is in the file, and not yet durable or visible
    after      the record is durable: the batch is committed, and Spark does not know
"""

import os
import signal


def _arm(point: str, count: int, counter: str) -> None:
    real, writing = os.pwrite, [False]

    def pwrite(fd: int, raw: bytes, position: int) -> int:
        kind = _kind(os.readlink(f"/proc/self/fd/{fd}"), position)
        if kind == "record" and point == "before" and _counted(counter) == count:
            _kill_session()
        written = real(fd, raw, position)
        now = "written" if kind == "record" else "after" if kind == "durable" and writing[0] else ""
        writing[0] = (writing[0] or kind == "record") and now != "after"
        if now == point and _counted(counter) == count:
            _kill_session()
        return written

    os.pwrite = pwrite


def _kind(path: str, position: int) -> str:
    directory, name = os.path.split(path)
    if os.path.basename(directory) != "ledger":
        return ""
    # A segment begins with a header, written when it is made. The frontier's first two slots of 512 bytes say what is
    # written, the other two what is durable.
    if name.endswith(".seg"):
        return "record" if position else ""
    return "durable" if name == "frontier" and position >= 1024 else ""


def _counted(counter: str) -> int:
    with open(counter, "ab") as file:
        file.write(b".")
    return os.path.getsize(counter)


def _kill_session() -> None:
    session, me = os.getsid(0), os.getpid()
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            if pid != me and os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    os.kill(me, signal.SIGKILL)


if "KILL_AT" in os.environ:
    _point, _count, _file = os.environ["KILL_AT"].split(":", 2)
    _arm(_point, int(_count), _file)
