"""Paper 001 (Shikfa, Önen and Molva): its tables again, symbol by symbol, and what it costs."""
