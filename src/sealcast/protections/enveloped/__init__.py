"""Events that publishers seal for readers, under a key that no broker has: what `payload` and `searchable` share.

    envelope   the sealed event, and what brokers are shown instead of it      brokers may import this
    hand_on    how brokers pass envelopes on, without opening them             and this
    keys, publish, open, client                                                publishers and readers only

Each of the two protections says what stands before the envelope for its brokers to go by.
"""
