#include "table.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"

static const char MAGIC[] = "SCQT2";
static const char DOMAIN[] = "sealcast/searchable/1 r";
#define MAGIC_BYTES (sizeof(MAGIC) - 1)
/* The fewest bytes that one of each takes: a count that promises more than the file has left is a lie. */
#define TOPIC_LEAST (1 + 1 + TOPIC_ID_BYTES + 2 + 4 + 4)
#define USER_LEAST (1 + 1)
#define EPOCH_LEAST (8 + 4 + 4 + 4)
#define HALF_SIZE (4 + SCALAR_BYTES)
#define CONJUNCTION_SIZE (4 + 1)
#define ENTRY_SIZE (4 + 4 + 64 + CHECK_BYTES)

static int digest(const uint8_t *data, size_t length, uint8_t out[DIGEST_BYTES])
{
	return EVP_Digest(data, length, out, NULL, EVP_sha256(), NULL);
}

/* A count of things of at least `least` bytes each, refused if the file cannot hold that many. What follows a count of
 * things of one size can therefore be read without asking again. */
static int read_count(struct reader *in, size_t least, uint32_t *count)
{
	return read_u32(in, count) && *count <= in->left / least;
}

static int read_name(struct reader *in, char name[MAX_NAME + 1])
{
	uint8_t length;
	const uint8_t *bytes;
	if (!read_u8(in, &length) || length == 0 || length > MAX_NAME || !(bytes = read_bytes(in, length)))
		return 0;
	for (uint8_t i = 0; i < length; i++)
		if (bytes[i] <= ' ' || bytes[i] > '~' || strchr("+#/", bytes[i]))
			return 0;
	memcpy(name, bytes, length);
	name[length] = '\0';
	return 1;
}

/* calloc that gives a pointer for nothing, too. */
static void *room(size_t count, size_t size)
{
	return calloc(count ? count : 1, size);
}

static uint8_t *append(uint8_t *to, const void *from, size_t length)
{
	memcpy(to, from, length);
	return to + length;
}

static const char *read_halves(struct reader *in, const struct topic *topic, struct epoch *epoch)
{
	if (!read_count(in, HALF_SIZE, &epoch->half_count))
		return "it has fewer halves than it says";
	if (!(epoch->halves = room(epoch->half_count, sizeof *epoch->halves)))
		return "no memory";
	for (uint32_t i = 0; i < epoch->half_count; i++) {
		struct half *half = &epoch->halves[i];
		uint8_t full[DIGEST_BYTES];
		if (!read_u32(in, &half->user) || half->user >= topic->user_count)
			return "a half belongs to no user";
		if (i && half->user <= epoch->halves[i - 1].user)
			return "halves are not in order";
		memcpy(half->scalar, read_bytes(in, SCALAR_BYTES), SCALAR_BYTES);
		if (!secp256k1_ec_seckey_verify(secp256k1_context_static, half->scalar))
			return "a half is no scalar of the curve";
		if (!digest(half->scalar, SCALAR_BYTES, full))
			return "no memory";
		memcpy(half->print, full, PRINT_BYTES);
	}
	return NULL;
}

static const char *read_conjunctions(struct reader *in, const struct topic *topic, struct epoch *epoch)
{
	if (!read_count(in, CONJUNCTION_SIZE, &epoch->conjunction_count))
		return "it has fewer conjunctions than it says";
	if (!(epoch->conjunctions = room(epoch->conjunction_count, sizeof *epoch->conjunctions)))
		return "no memory";
	size_t slots = 0;
	for (uint32_t i = 0; i < epoch->conjunction_count; i++) {
		struct conjunction *conjunction = &epoch->conjunctions[i];
		uint8_t count;
		if (!read_u32(in, &conjunction->user) || conjunction->user >= topic->user_count)
			return "a conjunction belongs to no user";
		if (!read_u8(in, &count) || count == 0)
			return "a conjunction has no slot"; /* it would let everything through */
		conjunction->slots = count;
		slots += count;
	}
	if (slots > UINT32_MAX)
		return "there are too many slots";
	epoch->slot_count = (uint32_t)slots;
	epoch->slot_owner = room(slots, sizeof *epoch->slot_owner);
	epoch->slot_event = room(slots, sizeof *epoch->slot_event);
	if (!epoch->slot_owner || !epoch->slot_event)
		return "no memory";
	uint32_t slot = 0;
	for (uint32_t i = 0; i < epoch->conjunction_count; i++)
		for (uint32_t n = 0; n < epoch->conjunctions[i].slots; n++)
			epoch->slot_owner[slot++] = i;
	return NULL;
}

static const char *read_entries(struct reader *in, struct epoch *epoch)
{
	if (!read_count(in, ENTRY_SIZE, &epoch->entry_count))
		return "it has fewer labels than it says";
	if (!(epoch->entries = room(epoch->entry_count, sizeof *epoch->entries)))
		return "no memory";
	for (uint32_t i = 0; i < epoch->entry_count; i++) {
		struct entry *entry = &epoch->entries[i];
		uint8_t point[65] = {4};
		if (!read_u32(in, &entry->tag) || !read_u32(in, &entry->slot) || entry->slot >= epoch->slot_count)
			return "a label belongs to no slot";
		if (i && entry->tag < epoch->entries[i - 1].tag)
			return "labels are not in order";
		memcpy(point + 1, read_bytes(in, 64), 64);
		if (!secp256k1_ec_pubkey_parse(secp256k1_context_static, &entry->point, point, sizeof point))
			return "a label is no point of the curve";
		memcpy(entry->check, read_bytes(in, CHECK_BYTES), CHECK_BYTES);
	}
	return NULL;
}

/* What the checks of each conjunction's labels are hashed with. It follows from whose they are. */
static const char *bind_conjunctions(const struct topic *topic, struct epoch *epoch)
{
	uint8_t text[sizeof DOMAIN - 1 + TOPIC_ID_BYTES + 8 + MAX_NAME], *end = text;
	if (!(epoch->bounds = room(epoch->conjunction_count, sizeof *epoch->bounds)))
		return "no memory";
	end = append(end, DOMAIN, sizeof DOMAIN - 1);
	end = append(end, topic->id, TOPIC_ID_BYTES);
	for (int shift = 56; shift >= 0; shift -= 8)
		*end++ = (uint8_t)(epoch->number >> shift);
	for (uint32_t i = 0; i < epoch->conjunction_count; i++) {
		uint32_t user = epoch->conjunctions[i].user;
		if (i && user == epoch->conjunctions[i - 1].user) { /* a user's stand together, for the most part */
			memcpy(epoch->bounds[i], epoch->bounds[i - 1], DIGEST_BYTES);
			continue;
		}
		const uint8_t *last = append(end, topic->users[user], strlen(topic->users[user]));
		if (!digest(text, (size_t)(last - text), epoch->bounds[i]))
			return "no memory";
	}
	return NULL;
}

static size_t tag_bit(const struct epoch *epoch, uint32_t tag)
{
	return (size_t)(tag * 0x9E3779B97F4A7C15u >> epoch->tag_shift);
}

/* At least eight bits for each entry: one tag in nine of those that nobody has passes, at the worst. */
static const char *mark_tags(struct epoch *epoch)
{
	unsigned bits = 6;
	while (((uint64_t)1 << bits) < (uint64_t)8 * epoch->entry_count)
		bits++;
	epoch->tag_shift = 64 - bits;
	if (!(epoch->tags = room((size_t)1 << (bits - 6), sizeof *epoch->tags)))
		return "no memory";
	for (uint32_t i = 0; i < epoch->entry_count; i++) {
		size_t bit = tag_bit(epoch, epoch->entries[i].tag);
		epoch->tags[bit / 64] |= (uint64_t)1 << bit % 64;
	}
	return NULL;
}

int epoch_may_have(const struct epoch *epoch, uint32_t tag)
{
	size_t bit = tag_bit(epoch, tag);
	return epoch->tags[bit / 64] >> bit % 64 & 1;
}

static const char *read_epochs(struct reader *in, struct topic *topic, uint32_t *ordinal)
{
	const char *why = NULL;
	if (!read_count(in, EPOCH_LEAST, &topic->epoch_count))
		return "it has fewer epochs than it says";
	if (!(topic->epochs = room(topic->epoch_count, sizeof *topic->epochs)))
		return "no memory";
	for (uint32_t i = 0; i < topic->epoch_count && !why; i++) {
		struct epoch *epoch = &topic->epochs[i];
		if (!read_u64(in, &epoch->number) || (i && epoch->number <= topic->epochs[i - 1].number))
			return "epochs are not in order";
		epoch->ordinal = (*ordinal)++;
		why = read_halves(in, topic, epoch);
		if (!why)
			why = read_conjunctions(in, topic, epoch);
		if (!why)
			why = read_entries(in, epoch);
		if (!why)
			why = bind_conjunctions(topic, epoch);
		if (!why)
			why = mark_tags(epoch);
	}
	return why;
}

static const char *read_users(struct reader *in, struct topic *topic)
{
	if (!read_count(in, USER_LEAST, &topic->user_count))
		return "it has fewer users than it says";
	topic->users = room(topic->user_count, sizeof *topic->users);
	topic->user_event = room(topic->user_count, sizeof *topic->user_event);
	if (!topic->users || !topic->user_event)
		return "no memory";
	for (uint32_t i = 0; i < topic->user_count; i++) {
		if (!read_name(in, topic->users[i]))
			return "a user has no proper name";
		if (i && strcmp(topic->users[i - 1], topic->users[i]) >= 0)
			return "users are not in order";
	}
	return NULL;
}

static const char *read_table(struct reader *in, struct table *table)
{
	const char *why = NULL;
	uint32_t ordinal = 0;
	if (!read_u64(in, &table->version) || !read_count(in, TOPIC_LEAST, &table->topic_count))
		return "it has fewer topics than it says";
	if (!(table->topics = room(table->topic_count, sizeof *table->topics)))
		return "no memory";
	for (uint32_t i = 0; i < table->topic_count && !why; i++) {
		struct topic *topic = &table->topics[i];
		if (!read_name(in, topic->name))
			return "a topic has no proper name";
		if (i && strcmp(table->topics[i - 1].name, topic->name) >= 0)
			return "topics are not in order";
		const uint8_t *id = read_bytes(in, TOPIC_ID_BYTES);
		if (!id || !read_u16(in, &topic->most_trapdoors))
			return "a topic ends too early";
		memcpy(topic->id, id, TOPIC_ID_BYTES);
		why = read_users(in, topic);
		if (!why)
			why = read_epochs(in, topic, &ordinal);
	}
	if (!why && in->left)
		why = "something follows its end";
	return why;
}

struct table *table_parse(const uint8_t *data, size_t length, const char **why)
{
	uint8_t sum[DIGEST_BYTES];
	*why = NULL;
	if (length < MAGIC_BYTES + 8 + 4 + DIGEST_BYTES || memcmp(data, MAGIC, MAGIC_BYTES))
		*why = "it is no table of this version";
	else if (!digest(data, length - DIGEST_BYTES, sum) || memcmp(sum, data + length - DIGEST_BYTES, DIGEST_BYTES))
		*why = "its checksum is wrong";
	if (*why)
		return NULL;
	struct reader in = {data + MAGIC_BYTES, length - MAGIC_BYTES - DIGEST_BYTES};
	struct table *table = calloc(1, sizeof *table);
	*why = table ? read_table(&in, table) : "no memory";
	if (*why) {
		table_free(table);
		return NULL;
	}
	return table;
}

/* The whole of a private file. Whoever could read it could join with a user and learn the topic's secret. */
static uint8_t *read_private(int fd, size_t *length, const char **why)
{
	struct stat is;
	if (fstat(fd, &is) || !S_ISREG(is.st_mode))
		*why = "it is no file";
	else if (is.st_mode & 077)
		*why = "others than its owner can read it: chmod 600";
	else if (is.st_uid != geteuid() && is.st_uid != 0)
		*why = "it belongs to another user than the broker's";
	else if (is.st_size <= 0 || (size_t)is.st_size > MAX_TABLE_BYTES)
		*why = "it is empty or too large";
	if (*why)
		return NULL;
	uint8_t *data = malloc((size_t)is.st_size);
	if (!data) {
		*why = "no memory";
		return NULL;
	}
	for (*length = 0; *length < (size_t)is.st_size;) {
		ssize_t got = read(fd, data + *length, (size_t)is.st_size - *length);
		if (got <= 0) {
			explicit_bzero(data, *length);
			free(data);
			*why = "it cannot be read to its end";
			return NULL;
		}
		*length += (size_t)got;
	}
	return data;
}

struct table *table_load(const char *path, const char **why)
{
	size_t length;
	*why = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		*why = "it cannot be opened";
		return NULL;
	}
	uint8_t *data = read_private(fd, &length, why);
	close(fd);
	if (!data)
		return NULL;
	struct table *table = table_parse(data, length, why);
	explicit_bzero(data, length);
	free(data);
	return table;
}

void table_free(struct table *table)
{
	if (!table)
		return;
	for (uint32_t t = 0; table->topics && t < table->topic_count; t++) {
		struct topic *topic = &table->topics[t];
		for (uint32_t e = 0; topic->epochs && e < topic->epoch_count; e++) {
			struct epoch *epoch = &topic->epochs[e];
			if (epoch->halves)
				explicit_bzero(epoch->halves, epoch->half_count * sizeof *epoch->halves);
			free(epoch->halves);
			free(epoch->conjunctions);
			free(epoch->slot_owner);
			free(epoch->slot_event);
			free(epoch->entries);
			free(epoch->bounds);
			free(epoch->tags);
		}
		free(topic->epochs);
		free(topic->users);
		free(topic->user_event);
	}
	free(table->topics);
	free(table);
}

/* Orders `name`, which need not end in a NUL, and a string of a table. */
static int compare(const char *name, size_t length, const char *with)
{
	size_t other = strlen(with);
	int order = memcmp(name, with, length < other ? length : other);
	return order ? order : (length > other) - (length < other);
}

struct topic *table_topic(const struct table *table, const char *name, size_t length)
{
	for (uint32_t low = 0, high = table->topic_count; low < high;) {
		uint32_t middle = low + (high - low) / 2;
		int order = compare(name, length, table->topics[middle].name);
		if (order == 0)
			return &table->topics[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

int topic_user(const struct topic *topic, const char *name, size_t length, uint32_t *user)
{
	for (uint32_t low = 0, high = topic->user_count; low < high;) {
		*user = low + (high - low) / 2;
		int order = compare(name, length, topic->users[*user]);
		if (order == 0)
			return 1;
		if (order < 0)
			high = *user;
		else
			low = *user + 1;
	}
	return 0;
}

struct epoch *topic_epoch(const struct topic *topic, uint64_t number)
{
	for (uint32_t i = topic->epoch_count; i-- > 0;) /* few, and the newest is asked for most */
		if (topic->epochs[i].number == number)
			return &topic->epochs[i];
	return NULL;
}

const struct half *epoch_half(const struct epoch *epoch, uint32_t user)
{
	for (uint32_t low = 0, high = epoch->half_count; low < high;) {
		uint32_t middle = low + (high - low) / 2;
		if (epoch->halves[middle].user == user)
			return &epoch->halves[middle];
		if (epoch->halves[middle].user > user)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}
