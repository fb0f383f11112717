"""The gateway: publishers and subscribers on other machines, over HTTPS.

    routes        every endpoint, on one page: what it takes, what it answers, who may ask
    openapi       that table as an OpenAPI document
    app           a request becomes an answer: who asks, whether it may, how much, what went wrong
    callers       whose certificate it is, and whether it counts by the newest registry
    access        who may have which log, record, piece and control topic
    registry, frames, mail, control, forwarding      what the endpoints do
    feeds         one watcher for each log, however many follow it
    doors         connections: how many, from where, how long they may say nothing
    serving       uvicorn, TLS, a drain, certificates that are exchanged while it runs

A gateway opens nothing. It holds no key of a topic, no authority and no center; its own key proves which host it is and
signs receipts. What it hands out is signed by others, and clients believe those signatures and not the gateway.
"""
