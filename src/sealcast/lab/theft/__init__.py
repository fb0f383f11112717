"""What whoever stole an entity's keys gets: tried with the keys, or presumed from what is on record without them."""
