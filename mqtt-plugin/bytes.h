/* Reading bytes that nobody vouches for: every read says whether there was enough left. */
#ifndef SEALCAST_BYTES_H
#define SEALCAST_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct reader {
	const uint8_t *at;
	size_t left;
};

static inline const uint8_t *read_bytes(struct reader *in, size_t count)
{
	if (in->left < count)
		return NULL;
	const uint8_t *found = in->at;
	in->at += count;
	in->left -= count;
	return found;
}

static inline int read_number(struct reader *in, size_t size, uint64_t *value)
{
	const uint8_t *bytes = read_bytes(in, size);
	*value = 0;
	for (size_t i = 0; bytes && i < size; i++)
		*value = *value << 8 | bytes[i];
	return bytes != NULL;
}

static inline int read_u64(struct reader *in, uint64_t *value)
{
	return read_number(in, 8, value);
}

#define READ_SMALLER(name, type)                          \
	static inline int name(struct reader *in, type *value) \
	{                                                      \
		uint64_t wide;                                     \
		int found = read_number(in, sizeof(type), &wide);  \
		*value = (type)wide;                               \
		return found;                                      \
	}
READ_SMALLER(read_u32, uint32_t)
READ_SMALLER(read_u16, uint16_t)
READ_SMALLER(read_u8, uint8_t)

#endif
