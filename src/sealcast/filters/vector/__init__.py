"""Conditions over a batch of events at once. `evaluate` is the reference; this agrees with it, faster.

intervals, leaves   a comparison with a constant as exact bounds: also what the index is made of
axes                columns as numbers on which bounds are compared
operands, compare   attributes against attributes, arithmetic
evaluator           three-valued logic over masks
"""
