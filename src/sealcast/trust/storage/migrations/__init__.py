"""The steps from each schema of the registry to the next, for Alembic. `storage.migrate` runs them.

A step is never changed once it was released: registries out there have gone through it as it was.
"""
