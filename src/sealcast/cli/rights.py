"""sealcast grant, sealcast revoke: rights per topic and entity, for a time and for what a template admits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import owners, talk, times
from sealcast.cli.topic import term_json
from sealcast.errors import Misuse
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.topics import Term

if TYPE_CHECKING:
    from sealcast.trust.realm.machine import RealmState

grant_app = talk.Commands()
revoke_app = talk.Commands()

Rights = Annotated[list[Right], typer.Argument(metavar="RIGHT...", help="publish, subscribe, or both.")]


@grant_app.command(epilog="Example: sealcast grant orders alice subscribe --for 30d --template symbol=IBM")
def grant(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    entity: Annotated[str, typer.Argument(metavar="ENTITY")],
    rights: Rights,
    span: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="How long it lasts: 12h, 30d [default: for good].")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="When the right begins, in UTC [default: now].")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="When the right ends, in UTC.")] = None,
    template: Annotated[
        str, typer.Option(metavar="TEMPLATE", help="Only for events like these: 'symbol=IBM, venue=*' [default: all].")
    ] = "*",
    narrow: Annotated[
        bool, typer.Option("--narrow", help="Also if it takes away from a right that the entity already has.")
    ] = False,
    as_: owners.OwnerOption = None,
) -> None:
    """Give an entity rights on a topic, and the key it needs to use them.

    A right that it already has gets the new terms. If these are narrower, it says so, and you must give --narrow. With
    a template, the entity can publish and read only events that satisfy the template.
    """
    from sealcast.control import requests
    from sealcast.trust.realm.templates import Template

    if span is not None and until is not None:
        raise typer.BadParameter("--for and --until say the same thing in two ways: give only one")
    here = talk.open_realm(afar=as_ is not None, home_of=Role.KEY_CENTER)
    begins = times.microseconds(start, "--from") if start is not None else 0
    ends = times.microseconds(until, "--until") if until is not None else None
    if span is not None:
        ends = (begins or here.clock()) + times.seconds(span, "--for") * 1_000_000
    with talk.about_filter(template):
        wanted = Term(begins, ends, str(Template.parse(template)))
        narrowed = _narrowed(here.state(), topic, entity, rights, wanted, here.clock(), narrow)
        if as_ is None:
            here.grant(topic, entity, rights, not_before_us=begins, until_us=ends, template=template)
        else:
            center = here.state().topic(topic).center
            with owners.asking(here, as_) as owner:
                requests.authorise(
                    owner, center, topic, entity, rights, not_before_us=begins, until_us=ends, template=template
                )
    for before in narrowed:
        talk.note(f"narrowed: {before} so far")
    _report(here.state(), topic, entity)


@revoke_app.command(epilog="Example: sealcast revoke orders alice publish")
def revoke(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    entity: Annotated[str, typer.Argument(metavar="ENTITY")],
    rights: Rights,
    as_: owners.OwnerOption = None,
) -> None:
    """Take an entity's rights on a topic away, from the next batch on.

    Its subscriptions stay, but deliver nothing until the right comes back. To revoke an entity on every topic, see
    `sealcast entity revoke`.
    """
    from sealcast.control import requests

    here = talk.open_realm(afar=as_ is not None, home_of=Role.KEY_CENTER)
    if as_ is None:
        here.revoke(topic, entity, rights)
    else:
        with owners.asking(here, as_) as owner:
            requests.deauthorise(owner, here.state().topic(topic).center, topic, entity, rights)
    _report(here.state(), topic, entity)


def _narrowed(
    state: RealmState, topic: str, entity: str, rights: list[Right], wanted: Term, now_us: int, meant: bool
) -> list[str]:
    """The rights, as they are now, of which these terms take something away; Misuse unless that is meant."""
    terms, found = state.terms_of(topic, entity), list[str]()
    for right in rights:
        held = terms.get(right)
        if held is None or held.over(now_us) or not _narrower(wanted, held, now_us):
            continue
        said = f"{entity!r} may {right} on {topic!r} {_limits(held) or 'without a limit'}"
        if not meant:
            raise Misuse(
                f"{said}; this would narrow it: {_limits(wanted)}", hint="if that is meant, give --narrow as well"
            )
        found.append(said)
    return found


def _narrower(wanted: Term, held: Term, now_us: int) -> bool:
    """Whether something that is held now, or will be, is not in what is wanted. Templates are compared as they are
    written: one is within another only if that is `*`."""
    later = wanted.not_before_us > max(now_us, held.not_before_us)
    earlier = wanted.until_us is not None and (held.until_us is None or wanted.until_us < held.until_us)
    return later or earlier or wanted.template not in ("*", held.template)


def _report(state: RealmState, topic: str, entity: str) -> None:
    terms = state.terms_of(topic, entity)
    held = [str(r) for r in Right if r in terms]
    shown = {str(right): term_json(term) for right, term in terms.items()}
    document = {"topic": topic, "entity": entity, "may": held, "terms": shown, "version": state.version}
    # Rights of the same terms in one breath; each limit stands beside the rights that it limits.
    by_limit: dict[str, list[str]] = {}
    for right in held:
        by_limit.setdefault(_limits(terms[Right(right)]), []).append(right)
    may = [
        f"{' and '.join(rights)} on {topic!r}" + (f", {limit}" if limit else "") for limit, rights in by_limit.items()
    ] or [f"do nothing on {topic!r}"]
    talk.answer(document, f"{entity!r} may {'; '.join(may)} (version {state.version})")


def _limits(term: Term) -> str:
    words = [f"from {times.moment(term.not_before_us)}"] if term.not_before_us else []
    words += [f"until {times.moment(term.until_us)}"] if term.until_us is not None else []
    words += [f"for {term.template}"] if term.template != "*" else []
    return " ".join(words)
