"""The process that hosts peers of `attribute` topics, and everything between nodes, keys, files and links.

hosting       where a process listens, and how soon it notices that somebody is gone
host          one process: its identities, the registry, time
hosted        one identity of a process: its links, and its peers by topic
addresses     where peers are reached
rendezvous    who runs the roots of a topic's trees
member        one entity on one topic: its node, its logs, what is durable before anything is sent
journal       what a peer says of itself, signed
places        which seats a peer takes, and the cryptography behind them (`overlay.peers.port.PeerCredentials`)
handing_over  a publisher's events on their way to every rendezvous
opening       a subscriber's events on their way into its inbox
away          up to when a peer heard everything
status        what a running process shows of itself
"""
