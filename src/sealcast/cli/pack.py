"""sealcast pack: Sealcast and what it needs, in an archive for executors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk

app = talk.Commands(shared=talk.JSON_ONLY)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, NAME.tar.gz.")]


@app.command(epilog="Example: sealcast pack sealcast.tar.gz")
def pack(file: File) -> None:
    """Write Sealcast and the packages that it needs into an archive that Spark unpacks beside each executor.

    Workers then need Spark, and Python of the version that runs this. PySpark and Java are not in the archive.

    Use it with: sealcast run --master spark://HOST:PORT --conf spark.archives=FILE#environment --conf
    spark.pyspark.python=./environment/bin/python
    """
    from sealcast.pipeline.packed import pack as write

    count, size = write(file)
    said = (
        f"{count} packages, {size / (1 << 20):,.0f} MiB in {file}. Run with --conf spark.archives={file}#environment "
        "--conf spark.pyspark.python=./environment/bin/python"
    )
    talk.answer({"file": str(file), "packages": count, "bytes": size}, said)
