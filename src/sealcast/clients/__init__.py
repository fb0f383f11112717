"""What publishers and subscribers use: plain Python, no Spark, nothing of the broker's."""
