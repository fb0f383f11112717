"""`layered`: routing by brokers that cannot read, by layers of commutative encryption (paper 001). See README.md."""
