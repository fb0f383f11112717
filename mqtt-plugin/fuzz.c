/* Damages a table and messages for a while and hands them to the parsers and the matcher, under the sanitizers.
 *
 *   fuzz SECONDS SEED TABLE TOPIC MESSAGE...
 *
 * A table is damaged in two ways: as it is, which its checksum catches, and with a new checksum, so that the parser
 * sees it. First of all the undamaged ones are used, which has to succeed. Prints how many of each were accepted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "match.h"

#define MAX_FILE ((size_t)1 << 24)

static uint64_t state;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint8_t *slurp(const char *path, size_t *length)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(MAX_FILE);
	if (!file || !data)
		exit(2);
	*length = fread(data, 1, MAX_FILE, file);
	fclose(file);
	return data;
}

/* A copy with up to eight changes, of exactly its length, so that the sanitizer sees one byte too many. */
static uint8_t *damage(const uint8_t *data, size_t *length)
{
	size_t cut = draw() % 4 ? *length : draw() % (*length + 1);
	uint8_t *copy = malloc(cut ? cut : 1);
	if (!copy)
		exit(2);
	memcpy(copy, data, cut);
	for (uint64_t changes = draw() % 8; cut && changes; changes--) {
		size_t at = (draw() % 2 ? draw() % cut : draw() % (cut < 128 ? cut : 128));
		switch (draw() % 3) {
		case 0:
			copy[at] = (uint8_t)draw();
			break;
		case 1:
			copy[at] ^= (uint8_t)(1u << draw() % 8);
			break;
		default:
			memset(copy + at, draw() % 2 ? 0xFF : 0, cut - at < 4 ? cut - at : 4);
		}
	}
	*length = cut;
	return copy;
}

static int fuzz_table(const uint8_t *data, size_t length)
{
	const char *why;
	uint8_t *copy = damage(data, &length);
	if (draw() % 8 && length >= DIGEST_BYTES)
		EVP_Digest(copy, length - DIGEST_BYTES, copy + length - DIGEST_BYTES, NULL, EVP_sha256(), NULL);
	struct table *table = table_parse(copy, length, &why);
	int accepted = table != NULL;
	if (!accepted && !why)
		abort();
	table_free(table);
	free(copy);
	return accepted;
}

static int fuzz_message(struct matcher *matcher, struct topic *topic, const uint8_t *data, size_t length)
{
	uint8_t *copy = damage(data, &length);
	enum reason reason = matcher_look(matcher, topic, copy, length);
	int goes = matcher_goes_to(matcher, topic, topic->user_count ? topic->users[draw() % topic->user_count] : "");
	if (goes && reason != OK)
		abort();
	free(copy);
	return reason == OK;
}

int main(int count, char **arguments)
{
	if (count < 6)
		return 2;
	time_t end = time(NULL) + atoi(arguments[1]);
	state = (uint64_t)atoll(arguments[2]) * 2 + 1;
	const char *why;
	size_t table_length, lengths[8];
	uint8_t *messages[8], *data = slurp(arguments[3], &table_length);
	struct table *table = table_load(arguments[3], &why);
	struct matcher matcher;
	if (!table || !matcher_open(&matcher))
		return 3;
	matcher_use(&matcher, table);
	struct topic *topic = table_topic(table, arguments[4], strlen(arguments[4]));
	size_t given = (size_t)count - 5 < 8 ? (size_t)count - 5 : 8;
	for (size_t i = 0; i < given; i++) {
		messages[i] = slurp(arguments[5 + i], &lengths[i]);
		if (!topic || matcher_look(&matcher, topic, messages[i], lengths[i]) != OK)
			return 4;
	}
	unsigned long long runs = 0, tables = 0, looked = 0;
	for (; time(NULL) < end; runs++) {
		tables += (unsigned)fuzz_table(data, table_length);
		size_t i = draw() % given;
		looked += (unsigned)fuzz_message(&matcher, topic, messages[i], lengths[i]);
	}
	printf("%llu rounds, %llu tables and %llu messages accepted\n", runs, tables, looked);
	for (size_t i = 0; i < given; i++)
		free(messages[i]);
	free(data);
	matcher_close(&matcher);
	return 0;
}
