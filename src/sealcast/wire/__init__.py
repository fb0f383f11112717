"""Bytes from and to the model. SPEC.md beside this file is the whole of it for whoever writes another client.

    limits       every bound by name
    cbor, cose   the encodings: one way to write a thing, and only that way is read
    frame        a publisher's signed and sealed batch: what the log holds
    records      messages (`layout` says where everything stands), one by one and as columns (`columns`, `domain`)
    sealed       pieces: what the pipeline delivers (`consistency` checks them)

Everything that comes from outside fails as FrameRejected or EventRejected, before anything is done with it.
"""
