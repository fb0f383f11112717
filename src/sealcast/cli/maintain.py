"""sealcast maintain: what falls due by itself."""

from __future__ import annotations

import typer

from sealcast.cli import talk

app = typer.Typer(**talk.SETTINGS)


@app.command(no_args_is_help=False, epilog="Example: sealcast maintain --json")
def maintain(realm: talk.RealmOption = None, json: talk.JsonOption = False) -> None:
    """Do what is due: renew certificates and tokens that have had half of their life, replace keys that are worn out.

    Run it now and then, once an hour say: tokens live a day unless their topic says otherwise, and a subscription ends
    with its token. It does what the secrets on this machine allow.
    """
    from sealcast.cli.epochs import messages

    here = talk.open_realm(realm)
    done = here.maintain(messages(here))
    if json:
        talk.emit({"certificates": list(done.certificates), "rotated": dict(done.rotated), "tokens": dict(done.tokens)})
        return
    for name in done.certificates:
        talk.say(f"{name!r} has a new certificate")
    for topic, why in done.rotated.items():
        talk.say(f"topic {topic!r} has new keys: {why}")
    for topic, count in done.tokens.items():
        talk.say(f"topic {topic!r}: new tokens for {count} subscriber{'s' if count != 1 else ''}")
    if not done:
        talk.note("nothing is due")
