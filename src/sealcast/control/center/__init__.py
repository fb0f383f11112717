"""Key centers: who may use which topic, and the keys and tokens that go with it (paper 004, sections 4.2 to 4.5).

requests.py   what a center is asked and what it answers, as bytes that have one reading
proofs.py     challenges: whether an entity has lately proven that its keys are in its own hands
rules.py      the numbered checks: a proven request, a state, the center's secrets and a time -> changes and an answer
service.py    the center itself: decides in transactions of the registry, listens on a control topic

`trust.keys.centers` has a center's secrets, `trust.keys.issuing` and `trust.keys.minting` make keys and tokens of them.
"""
