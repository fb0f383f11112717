"""What an administrator does, in whole transactions: `deployment.Realm` is all of it in one handle.

handle.py         opening a realm: its registry, its files, the secrets that are at hand
entities.py       enrolling, renewing and revoking, with the authority
authorities.py    the next authority, and the replacement of one that is lost
overlays.py       where the brokers of layered topics stand, and the keys that they agree by
topics.py         creating and rotating topics, granting and revoking rights, with the topics' key centers
subscriptions.py  subscribing, and the tokens that subscriptions live by
maintenance.py    what falls due by itself
founding.py       making a realm

Each act is one transaction of the registry. Private keys are written to their files before the registry makes them
known, and are as good as new if it never does; everything else that an act leaves outside of the registry (an
authority's copy of its lists, a topic's directories) is made from it, and made again when it is missing. So an
administrator that is killed at any moment has done an act or has not.
"""
