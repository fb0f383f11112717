"""Who holds which key: entities, brokers, key centers; the keys of topics by epoch, and how they are handed out."""
