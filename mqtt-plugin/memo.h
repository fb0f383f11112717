/* A bounded memo: fixed-size keys and values in sets of eight, where the one that rested longest makes room.
 *
 * Keys are compared whole, so that a collision costs time and never truth. Where a key goes depends on a secret of the
 * process: a publisher cannot aim at the places that others use. */
#ifndef SEALCAST_MEMO_H
#define SEALCAST_MEMO_H

#include <stddef.h>
#include <stdint.h>

struct memo {
	size_t key_bytes, value_bytes, item_bytes;
	unsigned shift; /* 64 less the bits that number the sets */
	uint64_t secret;
	uint64_t clock;
	uint64_t *marks; /* eight to a set: a hash of the key, so that one line of cache rules seven of them out */
	uint64_t *used;
	uint8_t *items;
};

/* 2^set_bits sets. Returns 0 if there is no memory or no randomness. */
int memo_open(struct memo *memo, size_t key_bytes, size_t value_bytes, unsigned set_bits);
void memo_close(struct memo *memo);
/* The value of a key, or NULL. */
void *memo_find(struct memo *memo, const void *key);
/* Where the value of a new key goes. What stands there is the value that made room, or zeros. */
void *memo_make(struct memo *memo, const void *key);
/* Calls `each` with every value, then forgets all keys. */
void memo_clear(struct memo *memo, void (*each)(void *value));

#endif
