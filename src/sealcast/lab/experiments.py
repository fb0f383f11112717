"""Every experiment of the lab, written out: which paper's table or figure it is, and where it is run.

To add one, write a function `(quick, told) -> Report` and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Final

from sealcast.errors import NotFound
from sealcast.lab.report import Report, Told


@dataclass(frozen=True, slots=True)
class Experiment:
    """Where an experiment is (`module:function`, below `sealcast.lab`), and what it does."""

    at: str
    summary: str

    def run(self, quick: bool, told: Told) -> Report:
        # Imported when it is run: listing experiments needs none of what they need.
        module, function = self.at.split(":")
        ready: Callable[[bool, Told], Report] = getattr(import_module(f"sealcast.lab.{module}"), function)
        return ready(quick, told)


EXPERIMENTS: Final[dict[str, Experiment]] = {
    "opyrchal/table1": Experiment("opyrchal.table1:run", "mean encryptions: printed, computed, simulated"),
    "opyrchal/fig6": Experiment("opyrchal.figures:fig6", "encryptions against subscribers, C = 10,000"),
    "opyrchal/fig7": Experiment("opyrchal.figures:fig7", "the best three, to 5,000 subscribers, C = 10,000 and 20,000"),
    "opyrchal/fig8": Experiment("opyrchal.figures:fig8", "encryptions against cache size"),
    "opyrchal/fig9": Experiment("opyrchal.fig9:run", "throughput against encryptions per message, and key set-up"),
    "opyrchal/auth": Experiment("opyrchal.auth:run", "throughput with integrity, key commitment and signatures"),
    "shikfa/table2": Experiment("shikfa.tables:table2", "a filter's way up and a routing table, symbol by symbol"),
    "shikfa/table3": Experiment("shikfa.tables:table3", "an event's way down, symbol by symbol"),
    "shikfa/cost": Experiment(
        "shikfa.cost:run", "powers, time and tables against layers, depth, fan-out, equal filters"
    ),
    "shikfa/curious": Experiment("curious.experiment:run", "what brokers get out of a day, and what they do not"),
    "shikfa/collusion": Experiment("curious.collusion:run", "pooled keys and what they open: claimed against tried"),
    "nguyen/table1": Experiment("nguyen.table1:run", "Bloom against cuckoo filters: memory, insertion, searching"),
    "nguyen/table2": Experiment("nguyen.table2:run", "pre-filtering and matching, beside our index and in MQTT"),
    "tariq/primitives": Experiment("tariq.primitives:run", "cost and operations of encrypting, signing, and back"),
    "tariq/fig6a": Experiment("tariq.fig6ab:fig6a", "connection delay against peers and attributes, with security"),
    "tariq/fig6b": Experiment("tariq.fig6ab:fig6b", "connection delay against out-degree, with security"),
    "tariq/fig6c": Experiment("tariq.fig6c:run", "dissemination delay against peers, with security"),
    "tariq/attacks": Experiment("tariq.attacks:run", "what timing, history and collusion reveal of subscriptions"),
    "tariq/scale": Experiment("tariq.scale:run", "keys, rekeying, messages and false positives against subscribers"),
    "tariq/credentials": Experiment("tariq.credentials:run", "credentials with attributes apart and together"),
    "pallickara/registration": Experiment(
        "pallickara.registration:run", "registering a topic, and where the time goes"
    ),
    "pallickara/token": Experiment("pallickara.token:run", "asking for a key and a token, and where the time goes"),
    "pallickara/end-to-end": Experiment("pallickara.end_to_end:run", "a message's delay, secured against unsecured"),
    "pallickara/hosts": Experiment("pallickara.hosts:run", "the same on four hosts, as root: figure 1's topology"),
    "pallickara/discovery": Experiment("pallickara.discovery:run", "finding topics, against how many match"),
    "pallickara/spacing": Experiment("pallickara.spacing:run", "whether the spacing of messages is preserved"),
    "pallickara/revocation": Experiment("pallickara.revocation:run", "revoking 1 % of 10,000 subscribers under load"),
}


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=1)
        raise NotFound(
            f"there is no experiment {name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""),
            hint="sealcast lab list names them all",
        )
    return EXPERIMENTS[name]
