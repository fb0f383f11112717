"""Many subscriptions against many events at once. See `core` for the way through, `plan` for what goes where."""

from sealcast.filters.index.core import Index

__all__ = ["Index"]
