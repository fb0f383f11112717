"""sealcast worker-home: what executors of a Spark cluster need of a realm, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.errors import Misuse
from sealcast.trust.layout import FIRST_BROKER

app = talk.Commands()

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory to make, or to bring up to date.")]
Node = Annotated[
    str | None,
    typer.Option(metavar="BROKER", help="The broker that the executors work for.", show_default=FIRST_BROKER),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="ENTITY", help="Instead of a broker: the entity whose own Spark jobs read or publish."
    ),
]


@app.command(
    epilog="Example: sealcast worker-home to-workers\n\nFor your own jobs: sealcast worker-home to-workers --as nyse"
)
def worker_home(directory: Directory, node: Node = None, as_: As = None) -> None:
    """Write what executors need on a worker of a Spark cluster: one broker's keys, and where everything else is.

    Put the directory on each worker, under the path that the realm has on the driver, readable by the executors' user
    alone. Its key file is sealed under the unlock key that seals it here. Nobody else's keys are in it, and no event.

    With --as, it has the keys of one entity, for `format("sealcast")` in your own jobs. Put it on the driver and on
    each worker under one path, and give that path as the option `realm`. The driver's copy also keeps what a job has
    published: keep it as long as the job's checkpoint.

    The registry has to be on PostgreSQL or behind a gateway, and topics should be on carriers. When keys or the
    carriers' settings have changed, run it again for the same directory: it is brought up to date, and keys that were
    destroyed here are removed from it. Then put it in the place of the old one on each worker.
    """
    from sealcast.trust.worker_home import make, make_of_entity

    if as_ is not None and node is not None:
        raise Misuse("--node is for a broker's executors, and --as for an entity's own jobs: name one of them")
    realm, broker = talk.open_broker_realm(), node or FIRST_BROKER
    made = make(realm, directory, broker) if as_ is None else make_of_entity(talk.open_entity_realm(), directory, as_)
    talk.answer(
        {"directory": str(directory), "files": made.files, "shared_topics": made.shared},
        f"{directory} has {', '.join(made.files)}",
    )
    for topic in made.shared:
        place = realm.paths.topic(topic, broker).root.relative_to(realm.paths.root)
        talk.note(
            f"topic {topic!r} is not all on a carrier: workers need its directory, {place}, on a network file system"
        )
