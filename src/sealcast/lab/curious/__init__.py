"""What `layered` really hides: brokers that write everything down, and coalitions that pool their keys."""
