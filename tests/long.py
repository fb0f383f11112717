"""The long tests: what `make soak` runs and `make test` does not, because of what it costs, with what stands for it
every day.

`make test` has to end within twenty minutes on two cores, or nobody runs it. So each claim keeps a small case in the
daily run, and the large one is here. Two kinds of test do not need this table, and mark themselves with
`@pytest.mark.soak`: those that were written to be long, and larger parameters of a test whose small ones are daily.

A key is the beginning of a test's name below `tests/`, and `*` stands for anything within it. A key that fits nothing
is an error when its file is collected. The figures are seconds of processor time, measured beside other work.
"""

from __future__ import annotations

import re
from typing import Final

_PASTED: Final = "test_every_block_works_when_it_is_pasted"
_TRUST: Final = {
    "authority": "9 commands, 10 s",
    "brokers": "starts Spark twice, 59 s",
    "discovery": "11 commands, 11 s",
    "compromise": "starts Spark twice, 37 s",
    "keys": "19 commands, 24 s",
    "overlays": "11 commands, 14 s",
    "service-machines": "14 commands, 28 s",
}
_OTHERS: Final = {
    "docs/cloudevents": "starts Spark, 26 s",
    "docs/dead-letters": "starts Spark, 28 s",
    "docs/deploy": "33 commands and Spark, 76 s",
    "docs/group-keys": "starts Spark, 12 s",
    "docs/groups": "starts Spark, 30 s",
    "docs/observe": "starts Spark, 24 s",
    "docs/operate": "25 commands and Spark, 52 s",
    "docs/peers": "10 commands with pairings, 18 s",
    "docs/publish": "8 commands, 10 s",
    "docs/spark": "starts Spark",
    "examples/tutorial/two-machines": "11 commands and Spark",
}

#: Why it is long, and what the daily run has for it.
LONG: Final[dict[str, str]] = {
    # --- pages that start Spark, or dozens of processes: 700 s together. Every day, README, the tutorial and the short
    # pages are pasted, and commands and imports of all pages are read as `sealcast` reads them: docs/test_typed.py.
    "docs/test_protection_documents.py": "four pages, 210 s",
    **{f"docs/test_trust_documents.py::{_PASTED}[docs/trust/{page}.md]": why for page, why in _TRUST.items()},
    "docs/test_trust_documents.py::test_several_brokers_deliver_each_event_once": "looks at what a long page printed",
    "docs/test_trust_documents.py::test_discovery_shows_each_what_it_may_find": "looks at what a long page printed",
    "docs/test_trust_documents.py::test_the_overlay_is_drawn_as_the_page_shows_it": "looks at what a long page printed",
    **{f"docs/test_documents.py::{_PASTED}[{page}.md]": why for page, why in _OTHERS.items()},
    # --- examples. Every day, the one that needs no Spark runs.
    "examples/test_examples.py::test_the_examples_say_what_they_should": "four programs, three of them on Spark, 58 s",
    # --- kills. Every day, the JVM is killed under a command, and runs and commits are killed in two places.
    "pipeline/test_crash.py::test_a_killed_jvm_or_worker_ends_the_command_with_a_word_and_the_next_run_goes_on"
    "[source_runner-Python processes]": "starts Spark twice, 34 s",
    "pipeline/test_failing_topics.py::test_others_go_on_and_the_topic_is_shown_and_tried_again": (
        "11 s; test_once_drains_the_others_and_then_says_what_failed is its short form"
    ),
    "pipeline/test_session.py::test_the_jvm_dies_with_its_parent_and_the_next_session_sweeps": "15 s; as above",
    **{
        f"trust/test_administration.py::test_an_administrator_killed_at_any_moment_has_*[{act}]": "4 s"
        for act in ("compromise", "broker")
    },
    # --- the same for every protection, plan, library or version of a protocol. Every day, one or two of them.
    **{
        f"clients/test_group_soak.py::test_each_event_is_acknowledged_once_whoever_is_killed[{name}]": "4 to 8 s"
        for name in ("payload", "searchable", "layered", "attribute")
    },
    **{
        f"pipeline/test_group_keys.py::test_members_open_and_all_others_together_do_not[{name}]": "4 s"
        for name in ("build-up", "clustered-popular", "simple", "naive")
    },
    # Every day, clients from afar have one protection with brokers and the one without; all have their own suite.
    **{f"remote/test_conformance.py::*[{name}]": "18 cases" for name in ("endpoint", "searchable", "layered")},
    # --- Java and clusters. Every day, the runtime that comes as a package is found where there is no other, and one
    # command runs on a real cluster of one worker, with its checkpoint at a URL (test_cluster_run.py).
    "pipeline/test_session.py::test_runs_without_any_java_on_this_machine_and_says_nothing": "a start of Spark, 22 s",
    "pipeline/test_cluster.py::test_checkpoint_at_a_url": "14 s",
    # --- commands that start Spark. Every day, `demo` and `run` do, and all else of these runs without it.
    "cli/test_doctor.py::test_spark_really_runs": "8 s",
    "remote/test_two_machines.py": "14 processes, 27 s; network/test_four_hosts.py joins realms from other hosts",
    "lab/test_match.py::test_the_command_itself": "13 s; its functions run in the session that tests share",
    "pipeline/test_faults.py::test_a_pipeline_on_a_full_disk_says_so_and_goes_on_when_there_is_space": (
        "12 s; log/test_disk.py fills disks without Spark"
    ),
    # --- many processes of peers. Every day, five of them are killed (test_peer_processes.py), cables are cut
    # (network/test_four_hosts.py), and labels are split within one process (test_split.py).
    **{
        f"protections/attribute/{name}": "7 s, and waits a minute"
        for name in (
            "test_peer_processes.py::test_parts_of_a_split_label_have_parents_in_different_processes",
            "test_peer_soak.py::test_eight_processes_two_kills_and_a_cut_cable",
        )
    },
    # --- installations without extras. Every day, administrators and clients beside a realm need none.
    "cli/test_extras.py::test_a_client_on_another_machine_needs_no_extra": "7 s",
    # --- MQTT. Every day, killed bridges and crowds run on MQTT 5, and every protection goes through a bridge on it.
    **{
        f"mqtt/test_bridge.py::test_events_go_through_mosquitto_and_back[{name}-3.1.1]": "1 to 2 s"
        for name in ("endpoint", "payload", "layered")
    },
    "mqtt/test_bridge.py::test_killed_bridges_lose_and_reorder_nothing[3.1.1]": "9 s",
    "mqtt/test_bridge.py::test_twenty_clients_through_a_bridge[3.1.1-200]": "5 s",
    # --- large numbers. Every day, the same on hundreds of events.
    "lab/test_match.py::test_ten_thousand_events_and_a_thousand_subscriptions": "30,000 pairs",
    "pipeline/test_faults.py::test_a_flood_of_refused_events_is_not_the_end_of_the_stream": (
        "9 s; test_replay.py has a flood through Spark"
    ),
    "pipeline/test_retention.py::test_the_oldest_of_a_recording_go_when_there_are_too_many_bytes[8000]": "4 s",
    "pipeline/test_budgets.py::test_without_budgets_they_do[xpath]": "13 s",
    "pipeline/test_faults.py::test_a_flipped_byte_in_the_frame_log_stops_the_pipeline_with_its_place[data]": "5 s",
    # Every day, groups on two machines have one protection whose broker reads and one whose brokers route blindly.
    **{
        f"remote/test_groups.py::test_members_on_two_machines_share_the_events[{name}]": "3 s"
        for name in ("payload", "searchable")
    },
    # Every day, each library has one profile, and each profile one library.
    **{
        f"protections/attribute/test_by_the_book.py::test_an_event_is_opened_and_verified_by_the_book[{name}]": "3 s"
        for name in ("fast-P", "portable-A")
    },
    # --- measurements in small, whose functions have tests of their own
    "cli/test_ease.py::test_the_rows_are_measured_with_real_processes": "8 s",
    "pipeline/test_attribute_cores.py": "13 s",
}


_FITS: Final = {key: re.compile(re.escape(key).replace(r"\*", ".*") + r"(?:$|(?=[\[:/]))") for key in LONG}


def is_long(nodeid: str) -> bool:
    """Whether a test is in the table."""
    name = nodeid.removeprefix("tests/")
    return any(fits.match(name) for fits in _FITS.values())


def unfit(names: list[str]) -> list[str]:
    """Keys that fit none of these tests, although their file is among them: that of a test which has another name
    now, and would run every day again."""
    below = [name.removeprefix("tests/") for name in names]
    files = {name.split("::")[0] for name in below}
    found = (key for key in LONG if key.split("::")[0] in files)
    return [key for key in found if not any(_FITS[key].match(name) for name in below)]
