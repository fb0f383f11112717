/* The table that `sealcast mqtt table` writes for a broker: whose events may come in, and which filters they meet.
 *
 * All integers are big-endian. What is sorted is checked to be sorted, since it is searched by bisection.
 *
 *   file         "SCQT2" | u64 version | u32 topics | topic... | SHA-256 of everything before it
 *   topic        u8 length | name | 16-byte id | u16 most trapdoors of an event | u32 users | user... | u32 epochs |
 *                epoch...                                                    (names, users, epochs ascending)
 *   user         u8 length | name
 *   epoch        u64 number | u32 halves | half... | u32 conjunctions | conjunction... | u32 entries | entry...
 *   half         u32 user | 32-byte scalar: the broker's half of a publisher's key    (users ascending)
 *   conjunction  u32 user | u8 slots: the user gets an event that meets every slot; slots are numbered through
 *   entry        u32 tag | u32 slot | x | y of the re-encrypted label | 16-byte check (tags ascending)
 *
 * A label is bound to who registered it: its check is hashed with SHA-256(DOMAIN | topic's id | u64 epoch | user's name),
 * made here from the names that decide who gets a message, so that another's label under one's own name matches nothing.
 */
#ifndef SEALCAST_TABLE_H
#define SEALCAST_TABLE_H

#include <secp256k1.h>
#include <stddef.h>
#include <stdint.h>

#define SCALAR_BYTES 32
#define CHECK_BYTES 16
#define PRINT_BYTES 16
#define DIGEST_BYTES 32
#define TOPIC_ID_BYTES 16
#define MAX_NAME 64
#define MAX_TABLE_BYTES ((size_t)1 << 30)

struct half {
	uint32_t user;
	uint8_t scalar[SCALAR_BYTES];
	uint8_t print[PRINT_BYTES]; /* stands for the scalar in memos, which outlive a table */
};

struct entry {
	secp256k1_pubkey point;
	uint8_t check[CHECK_BYTES];
	uint32_t tag;
	uint32_t slot;
};

struct conjunction {
	uint32_t user;
	uint32_t slots;
	uint32_t met;   /* scratch: how many of its slots the event at hand meets */
	uint64_t event; /* scratch: which event `met` is about */
};

struct epoch {
	uint64_t number;
	uint32_t ordinal; /* tells epochs of one table apart, over all topics */
	uint32_t half_count, conjunction_count, slot_count, entry_count;
	struct half *halves;
	struct conjunction *conjunctions;
	uint32_t *slot_owner; /* the conjunction that a slot belongs to */
	uint64_t *slot_event; /* scratch: the last event that met the slot */
	struct entry *entries;
	uint8_t (*bounds)[DIGEST_BYTES]; /* of conjunctions: what the checks of their labels are hashed with */
	uint64_t *tags;     /* a bit for every tag of an entry, and for a few others */
	unsigned tag_shift; /* 64 less the bits that number those bits */
};

struct topic {
	char name[MAX_NAME + 1];
	uint8_t id[TOPIC_ID_BYTES];
	uint16_t most_trapdoors; /* that an event of the topic's schema has: who sends more has made some up */
	uint32_t user_count, epoch_count;
	char (*users)[MAX_NAME + 1];
	uint64_t *user_event; /* scratch: the last event that goes to the user */
	struct epoch *epochs;
};

struct table {
	uint64_t version;
	uint32_t topic_count;
	struct topic *topics;
};

/* Both return a table, or NULL and say why in `*why`, which is a constant. */
struct table *table_parse(const uint8_t *data, size_t length, const char **why);
struct table *table_load(const char *path, const char **why);
void table_free(struct table *table);

struct topic *table_topic(const struct table *table, const char *name, size_t length);
struct epoch *topic_epoch(const struct topic *topic, uint64_t number);
int topic_user(const struct topic *topic, const char *name, size_t length, uint32_t *user);
/* Whether an entry may have the tag. "No" is certain, and costs no look at any entry. */
int epoch_may_have(const struct epoch *epoch, uint32_t tag);
const struct half *epoch_half(const struct epoch *epoch, uint32_t user);

#endif
