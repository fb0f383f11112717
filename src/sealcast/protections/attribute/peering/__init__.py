"""The process that hosts peers of `attribute` topics, and everything between nodes, keys, files and links.

host          one process: its identities, their links, the registry, time
addresses     where peers are reached
rendezvous    who runs the roots of a topic's trees
member        one entity on one topic: its node, its logs, what is durable before anything is sent
places        which seats a peer takes, and the cryptography behind them (`overlay.peers.port.PeerCredentials`)
handing_over  a publisher's events on their way to every rendezvous
opening       a subscriber's events on their way into its inbox
away          up to when a peer heard everything
status        what a running process shows of itself
"""
