"""The console: a realm as web pages, for `sealcast console`.

    browser ──> guard (host, origin, session) ──> app (routes) ──> a page (overview, topic, sees, ...)
                                                      └── live: one look at the realm a second, for all open pages

A page shows what its viewer may see (`viewer.Viewer`). It never holds more than the commands do: facts come from the
same witnesses as `status`, `why`, `explain` and `audit`, and events are opened with the viewer's own keys or not at
all. Markup is made by `html`, where text of others can only ever be text. Nothing is fetched from elsewhere, and
nothing runs that is not a file of this package: docs/adr/0044-console.md.
"""
