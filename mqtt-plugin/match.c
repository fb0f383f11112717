#include "match.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"

#define POINT_BYTES 33
#define TRAPDOOR_KEY (PRINT_BYTES + TRAPDOOR_BYTES)
#define MATCH_KEY (4 + 4 + POINT_BYTES)
#define MEMO_BITS 13 /* 65,536 trapdoors and as many values of them */
#define MAX_LISTED ((size_t)1 << 25)

const char *const REASON_NAMES[REASONS] = {
	"ok", "no user name", "malformed", "too many trapdoors", "unknown topic", "unknown epoch",
	"the publisher is not the sender", "no right to publish", "not a point of the curve", "no memory",
};

/* What one T meets: users, by conjunctions of one slot, and slots of larger conjunctions. Each once, in order. */
struct list {
	uint32_t users, slots;
	uint32_t numbers[];
};

/* What is known of a trapdoor. Its list is NULL if it meets nobody. */
struct known {
	uint64_t generation; /* of `list`; zero if it was not looked for */
	const struct list *list;
	uint32_t epoch;
	uint8_t has_token;
	uint8_t token[POINT_BYTES];
};

static void free_list(void *value)
{
	free(*(struct list **)value);
}

int matcher_open(struct matcher *matcher)
{
	memset(matcher, 0, sizeof *matcher);
	matcher->generation = 1;
	matcher->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	matcher->hash = EVP_MD_CTX_new();
	if (matcher->sha256 && matcher->hash &&
	    memo_open(&matcher->trapdoors, TRAPDOOR_KEY, sizeof(struct known), MEMO_BITS) &&
	    memo_open(&matcher->matches, MATCH_KEY, sizeof(struct list *), MEMO_BITS))
		return 1;
	matcher_close(matcher);
	return 0;
}

void matcher_use(struct matcher *matcher, struct table *table)
{
	if (matcher->matches.items)
		memo_clear(&matcher->matches, free_list);
	matcher->listed = 0;
	matcher->generation++;
	matcher->last_topic = NULL;
	table_free(matcher->table);
	matcher->table = table;
}

void matcher_close(struct matcher *matcher)
{
	matcher_use(matcher, NULL);
	memo_close(&matcher->trapdoors);
	memo_close(&matcher->matches);
	EVP_MD_CTX_free(matcher->hash);
	EVP_MD_free(matcher->sha256);
	free(matcher->last_head);
	memset(matcher, 0, sizeof *matcher);
}

enum reason message_parse(const uint8_t *data, size_t length, struct message *message)
{
	struct reader in = {data, length};
	const uint8_t *magic = read_bytes(&in, 4);
	uint8_t name;
	uint16_t count;
	uint32_t header, offset;
	if (!magic || memcmp(magic, "SCQ1", 4) || !read_u64(&in, &message->epoch))
		return MALFORMED;
	if (!read_u8(&in, &name) || !name || !(message->publisher = (const char *)read_bytes(&in, name)))
		return MALFORMED;
	message->publisher_length = name;
	if (!read_u32(&in, &header) || !read_bytes(&in, header))
		return MALFORMED;
	if (!read_u32(&in, &offset) || !read_bytes(&in, offset))
		return MALFORMED;
	if (!(magic = read_bytes(&in, 3)) || memcmp(magic, "SB1", 3) || !read_u16(&in, &count))
		return MALFORMED;
	if (count > MAX_TRAPDOORS)
		return TOO_MANY;
	message->count = count;
	if (!(message->trapdoors = read_bytes(&in, message->count * TRAPDOOR_BYTES)))
		return MALFORMED;
	for (size_t i = 1; i < message->count; i++) { /* so that none is there twice, and their order says nothing */
		const uint8_t *trapdoor = message->trapdoors + i * TRAPDOOR_BYTES;
		if (memcmp(trapdoor - TRAPDOOR_BYTES, trapdoor, TRAPDOOR_BYTES) >= 0)
			return MALFORMED;
	}
	message->head_length = length - in.left;
	return OK;
}

static int points_of(const uint8_t *trapdoor, secp256k1_pubkey *first, secp256k1_pubkey *second)
{
	const secp256k1_context *context = secp256k1_context_static;
	return secp256k1_ec_pubkey_parse(context, first, trapdoor + 4, POINT_BYTES) &&
	       secp256k1_ec_pubkey_parse(context, second, trapdoor + 4 + POINT_BYTES, POINT_BYTES);
}

/* T = half*t1 + t2. False for what is no point, and for a sum that is infinity. */
static int make_token(const struct half *half, const uint8_t *trapdoor, uint8_t token[POINT_BYTES])
{
	const secp256k1_context *context = secp256k1_context_static;
	secp256k1_pubkey first, second, sum;
	const secp256k1_pubkey *both[] = {&first, &second};
	size_t size = POINT_BYTES;
	if (!points_of(trapdoor, &first, &second) || !secp256k1_ec_pubkey_tweak_mul(context, &first, half->scalar) ||
	    !secp256k1_ec_pubkey_combine(context, &sum, both, 2))
		return 0;
	secp256k1_ec_pubkey_serialize(context, token, &size, &sum, SECP256K1_EC_COMPRESSED);
	return 1;
}

/* Whether the hash of C - T, for the user whose entry it is, begins with the entry's check. C = T, which is infinity,
 * matches nothing. */
static int entry_matches(struct matcher *matcher, const struct epoch *epoch, const struct entry *entry,
                         const secp256k1_pubkey *negated)
{
	const uint8_t *bound = epoch->bounds[epoch->slot_owner[entry->slot]];
	const secp256k1_context *context = secp256k1_context_static;
	const secp256k1_pubkey *both[] = {&entry->point, negated};
	secp256k1_pubkey difference;
	uint8_t point[POINT_BYTES], digest[DIGEST_BYTES];
	size_t size = POINT_BYTES;
	if (!secp256k1_ec_pubkey_combine(context, &difference, both, 2))
		return 0;
	secp256k1_ec_pubkey_serialize(context, point, &size, &difference, SECP256K1_EC_COMPRESSED);
	return EVP_DigestInit_ex2(matcher->hash, matcher->sha256, NULL) &&
	       EVP_DigestUpdate(matcher->hash, bound, DIGEST_BYTES) &&
	       EVP_DigestUpdate(matcher->hash, point, sizeof point) &&
	       EVP_DigestFinal_ex(matcher->hash, digest, NULL) && !memcmp(digest, entry->check, CHECK_BYTES);
}

static uint32_t first_entry(const struct epoch *epoch, uint32_t tag)
{
	uint32_t low = 0;
	for (uint32_t high = epoch->entry_count; low < high;) {
		uint32_t middle = low + (high - low) / 2;
		if (epoch->entries[middle].tag < tag)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int ascending(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	return (a > b) - (a < b);
}

static uint32_t sort_once(uint32_t *numbers, uint32_t count)
{
	uint32_t kept = 0;
	qsort(numbers, count, sizeof *numbers, ascending);
	for (uint32_t i = 0; i < count; i++)
		if (!kept || numbers[kept - 1] != numbers[i])
			numbers[kept++] = numbers[i];
	return kept;
}

/* Searches the bucket of a tag. Slots that match are collected first, users made of them next. */
static struct list *search(struct matcher *matcher, const struct epoch *epoch, uint32_t tag, const uint8_t *token)
{
	const secp256k1_context *context = secp256k1_context_static;
	secp256k1_pubkey negated;
	uint32_t first = first_entry(epoch, tag), end = first, slots = 0, users = 0;
	if (!secp256k1_ec_pubkey_parse(context, &negated, token, POINT_BYTES) ||
	    !secp256k1_ec_pubkey_negate(context, &negated))
		return NULL;
	while (end < epoch->entry_count && epoch->entries[end].tag == tag)
		end++;
	uint32_t *found = malloc(((size_t)(end - first) + 1) * sizeof *found);
	if (!found)
		return NULL;
	for (uint32_t i = first; i < end; i++)
		if (entry_matches(matcher, epoch, &epoch->entries[i], &negated))
			found[slots++] = epoch->entries[i].slot;
	slots = sort_once(found, slots);
	struct list *list = malloc(sizeof *list + slots * sizeof *list->numbers);
	if (list) {
		for (uint32_t i = 0; i < slots; i++) {
			const struct conjunction *owner = &epoch->conjunctions[epoch->slot_owner[found[i]]];
			if (owner->slots == 1)
				list->numbers[users++] = owner->user;
		}
		list->users = users = sort_once(list->numbers, users);
		for (uint32_t i = 0; i < slots; i++)
			if (epoch->conjunctions[epoch->slot_owner[found[i]]].slots > 1)
				list->numbers[users++] = found[i];
		list->slots = users - list->users;
	}
	free(found);
	return list;
}

static const struct list *find_list(struct matcher *matcher, const struct epoch *epoch, uint32_t tag,
                                    const uint8_t *token)
{
	uint8_t key[MATCH_KEY];
	memcpy(key, &epoch->ordinal, 4);
	memcpy(key + 4, &tag, 4); /* a wrong tag finds nothing, and must not be remembered for the right one */
	memcpy(key + 8, token, POINT_BYTES);
	struct list **place = memo_find(&matcher->matches, key);
	if (place)
		return *place;
	struct list *list = search(matcher, epoch, tag, token);
	if (!list)
		return NULL;
	if (matcher->listed > MAX_LISTED) {
		memo_clear(&matcher->matches, free_list);
		matcher->listed = 0;
		matcher->generation++;
	}
	place = memo_make(&matcher->matches, key);
	if (*place) {
		matcher->listed -= (*place)->users + (*place)->slots;
		matcher->generation++;
	}
	free(*place);
	*place = list;
	matcher->listed += list->users + list->slots;
	return list;
}

/* What a trapdoor meets, or NULL for nobody. A tag that no entry has is dismissed before any multiplication. */
static enum reason look_up(struct matcher *matcher, const struct epoch *epoch, const struct half *half,
                           const uint8_t *trapdoor, const struct list **list)
{
	uint8_t key[TRAPDOOR_KEY];
	memcpy(key, half->print, PRINT_BYTES);
	memcpy(key + PRINT_BYTES, trapdoor, TRAPDOOR_BYTES);
	struct known *known = memo_find(&matcher->trapdoors, key);
	if (known && known->generation == matcher->generation && known->epoch == epoch->ordinal) {
		*list = known->list;
		return OK;
	}
	struct known found = {0};
	struct reader in = {trapdoor, 4};
	uint32_t tag;
	read_u32(&in, &tag);
	if (known)
		found = *known;
	if (epoch_may_have(epoch, tag)) {
		if (!found.has_token && !make_token(half, trapdoor, found.token))
			return BAD_POINT;
		found.has_token = 1;
		if (!(found.list = find_list(matcher, epoch, tag, found.token)))
			return NO_MEMORY;
		if (!found.list->users && !found.list->slots)
			found.list = NULL;
	} else {
		secp256k1_pubkey first, second;
		if (!known && !points_of(trapdoor, &first, &second))
			return BAD_POINT;
		found.list = NULL;
	}
	found.generation = matcher->generation;
	found.epoch = epoch->ordinal;
	memcpy(known ? (void *)known : memo_make(&matcher->trapdoors, key), &found, sizeof found);
	*list = found.list;
	return OK;
}

static void meet(struct topic *topic, struct epoch *epoch, const struct list *list, uint64_t event)
{
	const uint32_t *number = list->numbers;
	for (const uint32_t *end = number + list->users; number < end; number++)
		topic->user_event[*number] = event;
	for (const uint32_t *end = number + list->slots; number < end; number++) {
		struct conjunction *conjunction = &epoch->conjunctions[epoch->slot_owner[*number]];
		if (epoch->slot_event[*number] == event)
			continue;
		epoch->slot_event[*number] = event;
		if (conjunction->event != event) {
			conjunction->event = event;
			conjunction->met = 0;
		}
		if (++conjunction->met == conjunction->slots)
			topic->user_event[conjunction->user] = event;
	}
}

static int remember(struct matcher *matcher, struct topic *topic, const uint8_t *head, size_t length)
{
	if (matcher->last_room < length) {
		uint8_t *larger = realloc(matcher->last_head, length);
		if (!larger)
			return 0;
		matcher->last_head = larger;
		matcher->last_room = length;
	}
	memcpy(matcher->last_head, head, length);
	matcher->last_length = length;
	matcher->last_topic = topic;
	return 1;
}

enum reason matcher_look(struct matcher *matcher, struct topic *topic, const uint8_t *data, size_t length)
{
	/* Not by address: the broker reuses the memory of a message that has gone. Equal heads of one topic have equal
	 * answers, whatever follows the block. */
	if (matcher->last_topic == topic && matcher->last_length <= length &&
	    !memcmp(matcher->last_head, data, matcher->last_length))
		return OK;
	matcher->last_topic = NULL;
	struct message message;
	uint32_t publisher;
	enum reason reason = message_parse(data, length, &message);
	if (reason != OK)
		return reason;
	if (message.count > topic->most_trapdoors)
		return TOO_MANY;
	struct epoch *epoch = topic_epoch(topic, message.epoch);
	if (!epoch)
		return UNKNOWN_EPOCH;
	if (!topic_user(topic, message.publisher, message.publisher_length, &publisher))
		return NO_HALF;
	const struct half *half = epoch_half(epoch, publisher);
	if (!half)
		return NO_HALF;
	matcher->event++;
	for (size_t i = 0; i < message.count; i++) {
		const struct list *list;
		reason = look_up(matcher, epoch, half, message.trapdoors + i * TRAPDOOR_BYTES, &list);
		if (reason != OK)
			return reason;
		if (list)
			meet(topic, epoch, list, matcher->event);
	}
	return remember(matcher, topic, data, message.head_length) ? OK : NO_MEMORY;
}

int matcher_goes_to(const struct matcher *matcher, const struct topic *topic, const char *user)
{
	uint32_t number;
	return matcher->last_topic == topic && topic_user(topic, user, strlen(user), &number) &&
	       topic->user_event[number] == matcher->event;
}
