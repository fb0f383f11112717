"""The documents whose blocks are pasted, in three parts: tests are shared among processes a file at a time, and a file
that pastes them all would be the last to end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.docs.paste import ROOT, as_said, documents, paste, to_run

README: Final = ROOT / "README.md"
TUTORIAL: Final = ROOT / "examples" / "tutorial" / "README.md"
#: These need a Kafka and a PostgreSQL.
CARRIERS: Final = ROOT / "docs" / "carriers.md"
CLUSTER: Final = ROOT / "docs" / "cluster.md"
#: Pasted by tests of their own, which look at more of what comes out.
ELSEWHERE: Final = (README, TUTORIAL, ROOT / "examples" / "README.md", CARRIERS, CLUSTER)
PASTED: Final = [page for page in documents() if to_run(page) and page not in ELSEWHERE]

#: The pages of single protections, those of the trust plane, and the others.
PROTECTIONS: Final = [
    page for page in PASTED if page.stem.split("-")[0] in ("attribute", "searchable", "payload", "layered")
]
TRUST: Final = [page for page in PASTED if page.parent.name == "trust"]
OTHERS: Final = [page for page in PASTED if page not in (*PROTECTIONS, *TRUST)]

#: What must be among the words that a document's blocks print, beside what its console blocks show themselves.
PRINTS: Final = {
    "docs/searchable.md": ['"payload": "bearing 2"', '"payload": "not wanted"', '"payload": "later"'],
    "docs/spark.md": ["IBM 118.50 nyse", "1 row in the stream", "1 event in columns, price 118.50"],
    "docs/trust/authority.md": ["Serial Number: 01", '"name": "Sealcast authority 3"'],
    "docs/trust/discovery.md": ['"venue": "NYSE"'],
    "docs/trust/key-center.md": [
        "topic 'orders' registered with 'center': 'owner' decides who may use it",
        "taken by this realm",
        "key-center",
    ],
    "docs/mqtt.md": [
        "ann got fire {'zone': 'north', 'heat': 230}",
        "bob got frost {'zone': 'south', 'heat': 3}",
        "3 events in, 2 deliveries, 0 refused",
    ],
    "docs/attribute.md": ["bed 3", "bed 9", "bed 4", *["refused, as it should be"] * 2, "1 pairs: 1 of 1 events"],
    "docs/operate.md": ['"payload": "second"', "attack: no key of broker, center", "topic 'quotes' was deleted"],
    "docs/observe.md": ["dashboard.json", "batch"],
    "docs/deploy.md": [
        '"status": "ready"',
        '"payload": "by paris"',
        "topic 'fixings' registered with 'center': 'carol' decides who may use it",
    ],
    "examples/tutorial/two-machines.md": ['"payload": "from afar"'],
    "docs/group-keys.md": ["choose ", "keys a subscriber", "different groups"],
}


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def check_pasted(document: Path) -> None:
    """Every block works, and prints what the document shows."""
    pasted = paste(document)
    assert pasted.code == 0, pasted.err
    for command, shown, printed in pasted.said:
        assert as_said(printed) == as_said(shown), command
    wanted = PRINTS.get(name(document), [])
    assert [text for text in wanted if pasted.out.count(text) < wanted.count(text)] == []
