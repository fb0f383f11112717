#include "memo.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define WAYS 8

int memo_open(struct memo *memo, size_t key_bytes, size_t value_bytes, unsigned set_bits)
{
	size_t items = WAYS << set_bits;
	memset(memo, 0, sizeof *memo);
	memo->key_bytes = key_bytes;
	memo->value_bytes = value_bytes;
	memo->item_bytes = (value_bytes + key_bytes + 7) / 8 * 8; /* the value comes first, so that it is aligned */
	memo->shift = 64 - set_bits;
	memo->marks = calloc(items, sizeof *memo->marks);
	memo->used = calloc(items, sizeof *memo->used);
	memo->items = calloc(items, memo->item_bytes);
	if (memo->marks && memo->used && memo->items &&
	    getrandom(&memo->secret, sizeof memo->secret, 0) == sizeof memo->secret)
		return 1;
	memo_close(memo);
	return 0;
}

void memo_close(struct memo *memo)
{
	free(memo->marks);
	free(memo->used);
	free(memo->items);
	memset(memo, 0, sizeof *memo);
}

/* Not zero, which marks an empty place. */
static uint64_t mark_of(const struct memo *memo, const uint8_t *key)
{
	uint64_t hash = memo->secret, part = 0;
	for (size_t at = 0; at < memo->key_bytes; at += 8) {
		size_t left = memo->key_bytes - at;
		part = 0;
		memcpy(&part, key + at, left < 8 ? left : 8);
		hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
		hash ^= hash >> 29;
	}
	return hash ? hash : 1;
}

static size_t first_of(const struct memo *memo, uint64_t mark)
{
	return (size_t)((mark * 0xD6E8FEB86659FD93u) >> memo->shift) * WAYS;
}

void *memo_find(struct memo *memo, const void *key)
{
	uint64_t mark = mark_of(memo, key);
	for (size_t at = first_of(memo, mark), end = at + WAYS; at < end; at++) {
		uint8_t *item = memo->items + at * memo->item_bytes;
		if (memo->marks[at] == mark && !memcmp(item + memo->value_bytes, key, memo->key_bytes)) {
			memo->used[at] = ++memo->clock;
			return item;
		}
	}
	return NULL;
}

void *memo_make(struct memo *memo, const void *key)
{
	uint64_t mark = mark_of(memo, key);
	size_t first = first_of(memo, mark), oldest = first;
	for (size_t at = first; at < first + WAYS; at++)
		if (memo->used[at] < memo->used[oldest])
			oldest = at;
	uint8_t *item = memo->items + oldest * memo->item_bytes;
	memo->marks[oldest] = mark;
	memo->used[oldest] = ++memo->clock;
	memcpy(item + memo->value_bytes, key, memo->key_bytes);
	return item;
}

void memo_clear(struct memo *memo, void (*each)(void *value))
{
	size_t items = (size_t)WAYS << (64 - memo->shift);
	for (size_t at = 0; at < items; at++)
		if (memo->marks[at])
			each(memo->items + at * memo->item_bytes);
	memset(memo->marks, 0, items * sizeof *memo->marks);
	memset(memo->used, 0, items * sizeof *memo->used);
	memset(memo->items, 0, items * memo->item_bytes);
}
