/* Which users get a message: the encrypted matching of the `searchable` protection.
 *
 *   message   "SCQ1" | u64 epoch | u8 length | publisher | u32 length | signed header | u32 offset | record
 *   block     "SB1" | u16 count | trapdoor...          at `offset` of the record
 *   trapdoor  u32 tag | t1 | t2                        compressed points
 *
 * With the broker's half x of the publisher's key, T = x*t1 + t2. A label's entry (C, check) matches if the hash of
 * C - T, for the user that the label is bound to, begins with its check. Nothing of this tells what the label is. */
#ifndef SEALCAST_MATCH_H
#define SEALCAST_MATCH_H

#include <openssl/evp.h>

#include "memo.h"
#include "table.h"

#define MAX_TRAPDOORS 8192
#define TRAPDOOR_BYTES 70

enum reason {
	OK,
	ANONYMOUS,
	MALFORMED,
	TOO_MANY,
	UNKNOWN_TOPIC,
	UNKNOWN_EPOCH,
	NOT_THE_SENDER,
	NO_HALF,
	BAD_POINT,
	NO_MEMORY,
	REASONS /* how many there are */
};
extern const char *const REASON_NAMES[REASONS];

struct message {
	uint64_t epoch;
	const char *publisher;
	size_t publisher_length;
	const uint8_t *trapdoors;
	size_t count;
	size_t head_length; /* the bytes that decide who gets it: all up to the end of the block */
};

struct matcher {
	struct table *table;
	struct memo trapdoors; /* (a half's print, trapdoor) -> that its points are good, and T: true for ever */
	struct memo matches;   /* (epoch of this table, tag, T) -> who and what it meets: true until the next table */
	uint64_t generation;   /* changes when a list of `matches` goes: pointers to lists hold for one generation */
	size_t listed;       /* numbers in all lists of `matches` */
	EVP_MD *sha256;
	EVP_MD_CTX *hash;
	/* The last message that was looked at. A broker asks about the same message once for each subscriber. */
	uint64_t event;
	struct topic *last_topic;
	uint8_t *last_head;
	size_t last_length, last_room;
};

int matcher_open(struct matcher *matcher);
void matcher_close(struct matcher *matcher);
/* Takes the table over and frees the one before. */
void matcher_use(struct matcher *matcher, struct table *table);

enum reason message_parse(const uint8_t *data, size_t length, struct message *message);
/* Finds out who gets the message; afterwards `matcher_goes_to` answers for this topic. */
enum reason matcher_look(struct matcher *matcher, struct topic *topic, const uint8_t *data, size_t length);
int matcher_goes_to(const struct matcher *matcher, const struct topic *topic, const char *user);

#endif
