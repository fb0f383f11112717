"""The process that hosts peers of `attribute` topics, and everything between nodes, keys, files and links.

places        which seats a peer takes, and the cryptography behind them (`overlay.peers.port.PeerCredentials`)
rendezvous    who runs the roots of a topic's trees
member        one entity on one topic: its node, its logs, what is durable before anything is sent
host          one process: its identities, their links, the registry, time
status        what a running process shows of itself
"""
