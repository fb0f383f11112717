"""sealcast worker-home: what executors of a Spark cluster need of a realm, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.trust.layout import FIRST_BROKER

app = talk.Commands()

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory to make.")]
Node = Annotated[str, typer.Option(metavar="BROKER", help="The broker that the executors work for.")]


@app.command(epilog="Example: sealcast worker-home to-workers")
def worker_home(directory: Directory, node: Node = FIRST_BROKER) -> None:
    """Write what executors need on a worker of a Spark cluster: one broker's keys, and where everything else is.

    Put the directory on each worker, under the path that the realm has here, readable by the executors' user alone. Its
    key file is sealed under the unlock key that seals it here. Nobody else's keys are in it, and no event.

    The registry has to be on PostgreSQL or behind a gateway, and topics should be on carriers. Make it again when the
    broker's keys or the carriers' settings have changed.
    """
    from sealcast.trust.worker_home import make

    made = make(talk.open_broker_realm(), directory, node)
    talk.answer(
        {"directory": str(directory), "files": made.files, "shared_topics": made.shared},
        f"{directory} has {', '.join(made.files)}",
    )
    for topic in made.shared:
        talk.note(
            f"topic {topic!r} is not on a carrier: workers need its directory, topics/{topic}, on a network file system"
        )
