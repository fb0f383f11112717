"""What an administrator does: one function for each act, on a handle that reaches the authority and the key centers.

handle.py         the handle before any act
entities.py       enrolling, renewing and revoking, with the authority
authorities.py    the next authority, and the replacement of one that is lost
topics.py         creating and rotating topics, granting and revoking rights, with the topics' key centers
overlays.py       where the brokers of topics with an overlay stand, and the keys that they agree by
subscriptions.py  subscribing, and the tokens that subscriptions live by
compromise.py     responding to a compromise
maintenance.py    what falls due by itself
founding.py       making a realm

`trust.deployment.Realm` lists these acts as its methods; nothing else imports this package, except the laboratory.

Each act is one transaction of the registry. Private keys are written to their files before the registry makes them
known, and are as good as new if it never does. Everything else that an act leaves outside of the registry (an
authority's copy of its lists, a topic's directories) is made from the registry, and made again when it is missing. So
an administrator who is killed at any moment has done an act or has not.
"""
