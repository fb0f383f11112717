"""Where a registry is kept: addresses without passwords, the databases' errors as ours, older and newer schemas."""

from __future__ import annotations

import json
import sqlite3
import sys
import traceback
from pathlib import Path

import psycopg
import pytest

from sealcast.errors import Corrupt, DiskFull, Locked, Misuse, NotFound, SealcastError, Unavailable
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import EnrolEntity
from sealcast.trust.registry import Registry
from sealcast.trust.storage import address, opening, postgres, schema, sqlite
from tests.cli.shell import sealcast
from tests.trust.places import FilePlace, Place, ServerPlace
from tests.trust.postgres import PASSWORD, Server

KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
ANN = EnrolEntity("ann", KEY, bytes(32))
MINE, THEIRS = b"m" * 16, b"t" * 16

# The schema before there were revisions, as the first release made it.
FIRST = """
CREATE TABLE changes (
    version INTEGER PRIMARY KEY,
    at_us   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    body    TEXT NOT NULL,
    chain   BLOB NOT NULL
) STRICT;
CREATE TRIGGER no_update BEFORE UPDATE ON changes BEGIN SELECT RAISE(ABORT, 'changes are only added'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON changes BEGIN SELECT RAISE(ABORT, 'changes are only added'); END;
"""


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown", "has_password"),
    [
        ("postgresql://db/market", "postgresql://db/market", False),
        ("postgresql+psycopg://ann@db:5433/market", "postgresql://ann@db:5433/market", False),
        ("postgresql://ann:s3cret@db/market", "postgresql://ann@db/market", True),
        ("postgresql://ann:@db/market", "postgresql://ann@db/market", True),
        ("postgresql://db/market?password=s3cret&sslmode=require", "postgresql://db/market?sslmode=require", True),
        ("postgresql://db/market?sslpassword=s3cret", "postgresql://db/market", True),
        ("postgresql://a%40b:s3%2Fcret@db/market", "postgresql://a%40b@db/market", True),
        ("postgresql:///market?host=/run/postgresql", "postgresql:///market?host=%2Frun%2Fpostgresql", False),
    ],
)
def test_what_is_shown_of_a_url_has_no_password(given: str, shown: str, has_password: bool) -> None:
    server = address.parse(given)
    assert isinstance(server, address.Server)
    assert (server.shown, server.has_password) == (shown, has_password)
    assert "cret" not in f"{server} {server!r}"
    assert not has_password or given.endswith(":@db/market") or "cret" not in server.without(f"tried {given}")
    if has_password:
        with pytest.raises(Misuse, match="has a password in it") as refusal:
            address.written(given)
        assert "cret" not in str(refusal.value) and "PGPASSWORD" in (refusal.value.hint or "")
    else:
        assert str(address.parse(address.written(given))) == shown


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db/market",
        "sqlite:///x",
        "postgresql://db",
        "postgresql://db/",
        "postgresql://db:port/market",
        "postgresql://[db/market",
        "postgresql://db/mar ket",
        "postgresql://db/market\n",
        "postgresql://db/" + "x" * 3000,
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Misuse) as refusal:
        address.parse(url)
    assert refusal.value.hint is not None


def test_the_environment_takes_the_place_of_what_is_written() -> None:
    written = "postgresql://db/market"
    assert address.effective(written, {}).shown == written
    told = address.effective(written, {address.ENVIRONMENT: "postgresql://ann:x@elsewhere/market"})
    assert told.shown == "postgresql://ann@elsewhere/market" and told.has_password
    with pytest.raises(Misuse, match=address.ENVIRONMENT):
        address.effective(written, {address.ENVIRONMENT: "registry.sqlite"})


# --- a realm on a server --------------------------------------------------------------------------


@pytest.fixture
def server_place(postgres: Server) -> ServerPlace:
    return ServerPlace(postgres)


def test_a_realm_on_a_server_writes_no_password_down(
    tmp_path: Path, server_place: ServerPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server_place.server.url(server_place.schema, password=None)
    with_password = server_place.server.url(server_place.schema)
    refused = sealcast("init", tmp_path / "market", "--registry", with_password)
    assert refused.code == 1 and "PGPASSFILE" in refused.err and PASSWORD not in refused.err + refused.out
    unreachable = sealcast("init", tmp_path / "market", "--registry", url)
    assert unreachable.code == 1 and "PGPASSWORD" in unreachable.err and PASSWORD not in unreachable.err
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    made = sealcast("init", tmp_path / "market", "--registry", url, "--json")
    assert made.code == 0, made.err
    assert made.document["registry"].startswith("postgresql://sealcast@127.0.0.1")
    monkeypatch.setenv("SEALCAST_REALM", str(tmp_path / "market"))
    assert sealcast("entity", "enrol", "alice").code == 0
    assert ("enrol-entity",) in server_place.rows("SELECT kind FROM changes")
    shown = sealcast("registry", "show", "--json").document
    assert shown["schema"] == schema.NEWEST and shown["whole"] is True
    checks = {c["check"]: c for c in sealcast("doctor", "--no-spark", "--json").document["checks"]}
    assert checks["registry"]["level"] == "ok" and "PostgreSQL" in checks["registry"]["found"]
    assert sealcast("inspect", tmp_path / "market" / "realm.json").code == 0
    files = [p for p in (tmp_path / "market").rglob("*") if p.is_file()]
    assert not any(PASSWORD.encode() in p.read_bytes() for p in files)
    assert not (tmp_path / "market" / "registry.sqlite").exists()
    # The password from the environment's URL, instead of PostgreSQL's own variables.
    monkeypatch.delenv("PGPASSWORD")
    opening.open_server.cache_clear()
    assert sealcast("entity", "list").code == 1
    monkeypatch.setenv(address.ENVIRONMENT, with_password)
    assert sealcast("entity", "list").code == 0


def test_a_password_that_was_written_down_anyway_is_refused(tmp_path: Path) -> None:
    root = Realm.create(tmp_path / "market").paths.root
    mark = json.loads((root / "realm.json").read_text())
    (root / "realm.json").write_text(json.dumps({**mark, "registry": "postgresql://a:s3cret@db/market"}))
    result = sealcast("entity", "list", "--realm", root)
    assert result.code == 1 and "has a password in it" in result.err and "s3cret" not in result.err


def test_a_registry_belongs_to_one_realm(place: Place) -> None:
    Registry.create(place.address, realm=MINE).apply(ANN)
    assert Registry(place.address, realm=MINE).version() == 1
    for use in (lambda r: r.version(), lambda r: r.apply(EnrolEntity("bob", KEY, bytes(32))), lambda r: r.state()):
        with pytest.raises(Misuse, match="registry of another realm"):
            use(Registry(place.address, realm=THEIRS))
    assert Registry(place.address).version() == 1, "who does not say, is not asked"
    place.unguard()
    place.run("UPDATE realm SET id = chain")
    with pytest.raises(Corrupt, match="whose it is cannot be read"):
        Registry(place.address, realm=MINE).version()


def test_a_registry_that_nobody_claimed_goes_to_who_comes_first(place: Place) -> None:
    Registry.create(place.address)
    assert Registry(place.address, realm=MINE).version() == 0
    with pytest.raises(Misuse, match="another realm"):
        Registry(place.address, realm=THEIRS).version()


# --- schemas --------------------------------------------------------------------------------------


def first_schema(place: Place) -> tuple[Registry, list[tuple[object, ...]]]:
    """A registry as the first release left it, with two changes in it."""
    elsewhere = FilePlace(place.address.parent / "other") if isinstance(place.address, Path) else None
    if isinstance(place, ServerPlace):
        source: Place = ServerPlace(place.server)
    else:
        assert elsewhere is not None
        (place.address.parent / "other").mkdir()  # type: ignore[union-attr]
        source = elsewhere
    Registry.create(source.address).apply_many([ANN, EnrolEntity("bob", KEY, bytes(32))])
    rows = source.rows("SELECT version, at_us, kind, body, chain FROM changes ORDER BY version")
    if isinstance(place, ServerPlace):
        _postgres_at_first(place)
        with place.server.connect(place.schema) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO changes VALUES (%s, %s, %s, %s, %s)", rows)
    else:
        connection = sqlite3.connect(place.address)  # type: ignore[arg-type]
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.executescript(FIRST)
        connection.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
        connection.close()
    return Registry(place.address, realm=MINE), rows


def _postgres_at_first(place: ServerPlace) -> None:
    from sqlalchemy import create_engine

    from sealcast.trust.storage import migrate

    engine = create_engine(place.address.url)
    with engine.begin() as connection:
        migrate.upgrade(connection, schema.REVISIONS[0])
    engine.dispose()


def test_the_first_schema_is_brought_up_to_date_with_everything_in_it(place: Place) -> None:
    registry, rows = first_schema(place)
    assert registry.revision() == schema.REVISIONS[0]
    if place.kind == "postgres":
        with pytest.raises(Unavailable, match=schema.REVISIONS[0]) as refusal:
            registry.state()
        assert "sealcast registry migrate" in (refusal.value.hint or "")
        assert registry.revision() == schema.REVISIONS[0], "nobody was asked, so nothing was done"
        assert registry.migrate() == schema.REVISIONS[0]
    assert set(registry.state().entities) == {"ann", "bob"}
    assert registry.revision() == registry.migrate() == schema.NEWEST
    assert place.rows("SELECT version, at_us, kind, body, chain FROM changes ORDER BY version") == rows
    assert registry.apply(EnrolEntity("cid", KEY, bytes(32))) == 3
    with pytest.raises(Misuse, match="another realm"):
        Registry(place.address, realm=THEIRS).version()
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError), match="only added"):
        place.run("DELETE FROM changes")


def test_a_step_that_fails_leaves_the_schema_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, rows = first_schema(place)
    # In the way of the last statements of the step.
    place.run("CREATE TABLE realm (x INTEGER)") if place.kind == "postgres" else place.run("DROP TRIGGER no_delete")
    with pytest.raises(SealcastError):
        registry.migrate()
    assert registry.revision() == schema.REVISIONS[0]
    assert place.rows("SELECT version, at_us, kind, body, chain FROM changes ORDER BY version") == rows


def test_made_at_once_or_step_by_step_the_schema_is_the_same(place: Place) -> None:
    stepped, _ = first_schema(place)
    stepped.migrate()
    if isinstance(place, ServerPlace):
        made: Place = ServerPlace(place.server)
    else:
        (place.address.parent / "made").mkdir()  # type: ignore[union-attr]
        made = FilePlace(place.address.parent / "made")  # type: ignore[union-attr]
    Registry.create(made.address)
    assert described(place) == described(made)


def described(place: Place) -> list[object]:
    if isinstance(place, FilePlace):
        shape: list[object] = []
        for (table,) in place.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
            # A number that is the row's own is never NULL; the first schema left that unsaid.
            columns = place.rows(f"SELECT name, type, pk, pk OR \"notnull\" FROM pragma_table_xinfo('{table}')")
            shape.append((table, columns, place.rows(f"SELECT strict FROM pragma_table_list('{table}')")))
        return [*shape, *place.rows("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY 1")]
    here = f"'{place.schema}'"
    queries = (
        "SELECT table_name, column_name, data_type, is_nullable, character_maximum_length"
        f" FROM information_schema.columns WHERE table_schema = {here} ORDER BY 1, ordinal_position",
        f"SELECT relname, tgname, tgtype FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace ="
        f" {here}::regnamespace AND NOT tgisinternal ORDER BY 1, 2",
        f"SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid) FROM pg_constraint"
        f" WHERE connamespace = {here}::regnamespace ORDER BY 1, 2, 3",
    )
    return [place.rows(query) for query in queries]


def test_the_steps_are_those_that_the_code_knows() -> None:
    from alembic.script import ScriptDirectory

    from sealcast.trust.storage import migrate

    steps = ScriptDirectory.from_config(migrate._config(None)).walk_revisions()
    assert tuple(step.revision for step in steps)[::-1] == schema.REVISIONS
    assert all(map(schema.is_revision, schema.REVISIONS))


def test_a_newer_schema_is_refused_and_a_damaged_one_is_named(place: Place) -> None:
    registry = Registry.create(place.address)
    assert registry.version() == 0
    for found, error, words in (
        ("0004_70e31ef3", Misuse, "newer than this release"),
        ("0003_b57bd088", Corrupt, "cannot be read"),
        ("x", Corrupt, "cannot be read"),
    ):
        place.run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{found}'")
        opening.open_server.cache_clear()  # connections that were made before go on reading
        for use in (Registry(place.address).state, Registry(place.address).migrate, Registry(place.address).revision):
            with pytest.raises(error, match=words):
                use()
        with pytest.raises(error, match=words):
            registry.apply(ANN)
    place.run(f"DELETE FROM {schema.VERSION_TABLE}")
    opening.open_server.cache_clear()
    with pytest.raises(Corrupt):
        Registry(place.address).state()
    place.run(f"INSERT INTO {schema.VERSION_TABLE} VALUES ('{schema.NEWEST}')")
    assert Registry(place.address).version() == registry.version() == 0


# --- errors ---------------------------------------------------------------------------------------


def shown(error: BaseException) -> str:
    """All that a user could be shown of it, the whole traceback included."""
    return "".join(traceback.format_exception(error)) + str(getattr(error, "hint", ""))


def test_a_server_that_cannot_be_reached_is_named_without_a_password(server_place: ServerPlace) -> None:
    server, name = server_place.server, server_place.schema
    port = str(server.port)
    cases: dict[str, tuple[str, str, str]] = {
        "wrong password": (server.url(name, password="Wrong-Horse-1"), "authentication failed", "PGPASSWORD"),
        "no password": (server.url(name, password=None), "no password", "PGPASSWORD"),
        "no such user": (server.url(name, user="eve"), "authentication failed", "PGPASSWORD"),
        "no such database": (server.url(name, database="nothing"), "does not exist", "createdb"),
        "nobody there": (server.url(name).replace(port, "1"), "refused", "check that the server runs"),
        "no such host": (server.url(name).replace("127.0.0.1", "nowhere.invalid"), "nowhere", "can be reached"),
        "bad option": (server.url(name) + "&nonsense=1", "nonsense", "check"),
    }
    for what, (url, words, hint) in cases.items():
        with pytest.raises(Unavailable, match=words) as refusal:
            Registry(url).version()
            pytest.fail(what)
        assert hint in (refusal.value.hint or ""), what
        assert PASSWORD not in shown(refusal.value) and "Wrong-Horse-1" not in shown(refusal.value), what


def test_without_a_registry_there_it_says_how_to_make_one(server_place: ServerPlace) -> None:
    with pytest.raises(NotFound, match="there is no registry") as refusal:
        Registry(server_place.address).state()
    assert "sealcast init" in (refusal.value.hint or "")


def test_a_role_that_reads_and_adds_is_enough_and_less_is_named(server_place: ServerPlace) -> None:
    Registry.create(server_place.address, realm=MINE).apply(ANN)
    name, role = server_place.schema, f"role_{server_place.schema}"
    server_place.run(f"CREATE ROLE {role} LOGIN PASSWORD 'x'", f"GRANT USAGE ON SCHEMA {name} TO {role}")
    url = server_place.server.url(name, user=role, password="x")
    server_place.run(f"GRANT SELECT ON realm, {schema.VERSION_TABLE} TO {role}")
    with pytest.raises(Unavailable, match="permission denied for table changes") as refusal:
        Registry(url, realm=MINE).state()
    assert "GRANT SELECT" in (refusal.value.hint or "")
    server_place.run(f"GRANT SELECT ON changes TO {role}")
    reader = Registry(url, realm=MINE)
    assert reader.version() == 1
    with pytest.raises(Unavailable, match="permission denied"):
        reader.apply(EnrolEntity("bob", KEY, bytes(32)))
    server_place.run(f"GRANT INSERT ON changes TO {role}")
    assert reader.apply(EnrolEntity("bob", KEY, bytes(32))) == 2
    assert reader.version() == 2


def test_a_writer_that_waits_too_long_gives_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.create(place.address)
    registry.apply(ANN)
    if isinstance(place, ServerPlace):
        monkeypatch.setattr(postgres, "_SETTINGS", postgres._SETTINGS.bindparams(wait="200ms"))
        holder = place.server.connect(place.schema, autocommit=False)
        holder.execute("SELECT pg_advisory_xact_lock(%s, 'changes'::regclass::oid::int)", (schema.APPLICATION_ID,))
    else:
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
        registry = Registry(place.address)
        holder = sqlite3.connect(place.address, isolation_level=None)  # type: ignore[assignment,arg-type]
        holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Locked, match="locked for") as refusal:
        registry.apply(EnrolEntity("bob", KEY, bytes(32)))
    assert refusal.value.hint == "try again"
    assert registry.version() == 1, "reading needs no turn"
    holder.close()
    assert registry.apply(EnrolEntity("bob", KEY, bytes(32))) == 2


@pytest.mark.parametrize(
    ("code", "error", "hint"),
    [
        ("53100", DiskFull, ""),
        ("53300", Unavailable, "at its limits"),
        ("25006", Unavailable, "primary"),
        ("40P01", Locked, "try again"),
        ("XX001", Corrupt, "restore"),
        ("23505", Corrupt, "restore"),
        ("42P01", Corrupt, "restore"),
        ("28P01", Unavailable, "PGPASSWORD"),
        ("57P01", Unavailable, "check that the server runs"),
    ],
)
def test_what_servers_say_is_said_in_our_words(code: str, error: type[SealcastError], hint: str) -> None:
    server = address.parse("postgresql://ann:s3cret@db/market")
    assert isinstance(server, address.Server)
    said = psycopg.errors.lookup(code)("it repeats s3cret\nDETAIL: and more") if code != "XX001" else _coded(code)
    translated = postgres.PostgresDatabase(server).trouble(said)
    assert type(translated) is error and hint in (translated.hint or "")
    assert "s3cret" not in str(translated) and "DETAIL" not in str(translated)


def _coded(code: str) -> psycopg.Error:
    return psycopg.errors.lookup(code)("invalid page in block 7")


def test_a_database_that_cannot_hold_every_letter_is_refused(postgres: Server) -> None:
    name = f"latin_{postgres.port}"
    with postgres.connect() as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"  # type: ignore[arg-type]
        )
    with pytest.raises(Misuse, match="keeps text as LATIN1"):
        Registry.create(postgres.url("public", database=name))


def test_without_the_driver_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match="driver") as refusal:
        Registry("postgresql://nowhere.invalid/without-a-driver").version()
    assert "sealcast[postgres]" in (refusal.value.hint or "")


@pytest.mark.parametrize("table", ["changes", "realm"])
def test_a_missing_table_is_damage(place: Place, table: str) -> None:
    Registry.create(place.address, realm=MINE)
    place.run(f"DROP TABLE {table}")
    with pytest.raises(Corrupt, match=table):
        Registry(place.address, realm=MINE).version()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE realm SET id = NULL", "whose it is cannot be read"),
        ("UPDATE realm SET id = 'a text'", "whose it is cannot be read"),
        (f"UPDATE {schema.VERSION_TABLE} SET version_num = x'00ff'", "the revision of its schema cannot be read"),
    ],
)
def test_a_column_of_another_type_is_damage(tmp_path: Path, damage: str, said: str) -> None:
    """One flipped bit of a row's header makes another type of a value, whatever the schema of the table says."""
    realm = Realm.create(tmp_path / "realm")
    file = sqlite3.connect(realm.paths.registry)
    file.executescript(
        f"CREATE TABLE same AS SELECT * FROM realm; DROP TABLE realm; ALTER TABLE same RENAME TO realm; {damage}"
    )
    file.close()
    with pytest.raises(Corrupt, match=said):
        Realm(realm.paths.root).state()
