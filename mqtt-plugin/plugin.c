/* Sealed topics inside mosquitto 2.0: the plug-in answers who may publish to them, and which client gets which event.
 *
 * mosquitto asks, in this order and on one thread:
 *   1. ACL_CHECK write, when a client publishes or its will is sent, and again of a retained message's author;
 *   2. MESSAGE, after 1, for what clients publish (not for wills);
 *   3. ACL_CHECK read, for each subscriber that the message would go to; again for what waited for a client that was
 *      away, when it comes back; and for a retained message, when somebody subscribes.
 * All of them come with the payload. Who gets a message is worked out in 1 and remembered for the questions of 3 that
 * follow at once; whenever another message is asked about, it is worked out again.
 *
 * mosquitto asks the plug-ins in the order of its configuration, its own acl_file last, and takes the first answer that
 * is not "defer". This plug-in answers for `prefix`T`/events` alone, for any T: what its table does not know is
 * refused. */
#include <mosquitto.h>
#include <mosquitto_broker.h>
#include <mosquitto_plugin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "match.h"

#define DEFAULT_PREFIX "sealcast/v1/"
#define SUFFIX "/events"
#define LOOK_EVERY_MS 100
#define UNUSED __attribute__((unused))

struct plugin {
	mosquitto_plugin_id_t *id;
	char *path, *prefix;
	struct matcher matcher;
	struct stat seen; /* the file that was looked at last, loaded or not */
	int64_t next_look_ms;
	uint64_t refused[REASONS];
	int64_t next_log_ms[REASONS];
};

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- the table ----------------------------------------------------------------------------------------------- */

static int load(struct plugin *plugin)
{
	const char *why;
	struct table *table = table_load(plugin->path, &why);
	if (!table) {
		mosquitto_log_printf(MOSQ_LOG_ERR, "sealcast: the table %s is not used: %s", plugin->path, why);
		return 0;
	}
	mosquitto_log_printf(MOSQ_LOG_NOTICE, "sealcast: table version %llu with %u topics is in use",
	                     (unsigned long long)table->version, (unsigned)table->topic_count);
	matcher_use(&plugin->matcher, table);
	return 1;
}

static int same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mode == b->st_mode &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* A table that cannot be used leaves the one before in place, and is not tried again until it changes. */
static void look_for_a_new_table(struct plugin *plugin)
{
	struct stat is;
	int64_t now = now_ms();
	if (now < plugin->next_look_ms)
		return;
	plugin->next_look_ms = now + LOOK_EVERY_MS;
	if (stat(plugin->path, &is))
		memset(&is, 0, sizeof is);
	if (same_file(&is, &plugin->seen))
		return;
	plugin->seen = is;
	load(plugin);
}

/* --- decisions ------------------------------------------------------------------------------------------------ */

/* The name T of `prefix`T`/events`, and its length; NULL for any other topic, which is not ours to decide on. */
static const char *sealed_name(const struct plugin *plugin, const char *topic, size_t *length)
{
	size_t prefix = strlen(plugin->prefix);
	if (strncmp(topic, plugin->prefix, prefix))
		return NULL;
	const char *end = strchr(topic + prefix, '/');
	if (!end || strcmp(end, SUFFIX))
		return NULL;
	*length = (size_t)(end - topic) - prefix;
	return topic + prefix;
}

static int is_sealed(const struct plugin *plugin, const char *topic)
{
	size_t length;
	return sealed_name(plugin, topic, &length) != NULL;
}

static struct topic *sealed_topic(const struct plugin *plugin, const char *topic)
{
	size_t length;
	const char *name = sealed_name(plugin, topic, &length);
	return name ? table_topic(plugin->matcher.table, name, length) : NULL;
}

/* Counts every refusal and logs one of a kind per second: the reason, and nothing of the message. */
static int refuse(struct plugin *plugin, enum reason reason)
{
	int64_t now = now_ms();
	plugin->refused[reason]++;
	if (now >= plugin->next_log_ms[reason]) {
		plugin->next_log_ms[reason] = now + 1000;
		mosquitto_log_printf(MOSQ_LOG_NOTICE, "sealcast: refused a message: %s (%llu since the start)",
		                     REASON_NAMES[reason], (unsigned long long)plugin->refused[reason]);
	}
	return MOSQ_ERR_ACL_DENIED;
}

static int check_write(struct plugin *plugin, struct mosquitto *client, const char *name, const void *data,
                       size_t length)
{
	const char *user = mosquitto_client_username(client);
	struct topic *topic = sealed_topic(plugin, name);
	struct message message;
	if (!user)
		return refuse(plugin, ANONYMOUS);
	if (!topic)
		return refuse(plugin, UNKNOWN_TOPIC);
	/* Whose message it is comes before any work on it: nobody spends the broker's time in another's name. */
	enum reason reason = message_parse(data, length, &message);
	if (reason != OK)
		return refuse(plugin, reason);
	if (strlen(user) != message.publisher_length || memcmp(user, message.publisher, message.publisher_length))
		return refuse(plugin, NOT_THE_SENDER);
	reason = matcher_look(&plugin->matcher, topic, data, length);
	return reason == OK ? MOSQ_ERR_SUCCESS : refuse(plugin, reason);
}

static int check_read(struct plugin *plugin, struct mosquitto *client, const char *name, const void *data,
                      size_t length)
{
	const char *user = mosquitto_client_username(client);
	struct topic *topic = sealed_topic(plugin, name);
	if (user && topic && matcher_look(&plugin->matcher, topic, data, length) == OK &&
	    matcher_goes_to(&plugin->matcher, topic, user))
		return MOSQ_ERR_SUCCESS;
	return MOSQ_ERR_ACL_DENIED;
}

/* Of a shared subscription, mosquitto picks one member first and asks whether it may read next: what the others asked
 * for would be lost. So nobody shares a sealed topic. */
static int check_subscribe(const struct plugin *plugin, struct mosquitto *client, const char *filter)
{
	static const char SHARE[] = "$share/";
	if (!strncmp(filter, SHARE, sizeof SHARE - 1)) {
		const char *shared = strchr(filter + sizeof SHARE - 1, '/');
		int under = shared && !strncmp(shared + 1, plugin->prefix, strlen(plugin->prefix)) && strchr(shared, '#');
		return under || (shared && is_sealed(plugin, shared + 1)) ? MOSQ_ERR_ACL_DENIED : MOSQ_ERR_PLUGIN_DEFER;
	}
	if (!is_sealed(plugin, filter))
		return MOSQ_ERR_PLUGIN_DEFER;
	return mosquitto_client_username(client) ? MOSQ_ERR_SUCCESS : MOSQ_ERR_ACL_DENIED;
}

/* --- what mosquitto calls ------------------------------------------------------------------------------------- */

static int on_acl_check(int event UNUSED, void *data, void *self)
{
	struct plugin *plugin = self;
	struct mosquitto_evt_acl_check *asked = data;
	look_for_a_new_table(plugin);
	if (asked->access == MOSQ_ACL_SUBSCRIBE)
		return check_subscribe(plugin, asked->client, asked->topic);
	if (!is_sealed(plugin, asked->topic))
		return MOSQ_ERR_PLUGIN_DEFER;
	switch (asked->access) {
	case MOSQ_ACL_WRITE:
		return check_write(plugin, asked->client, asked->topic, asked->payload, asked->payloadlen);
	case MOSQ_ACL_READ:
		return check_read(plugin, asked->client, asked->topic, asked->payload, asked->payloadlen);
	case MOSQ_ACL_UNSUBSCRIBE:
		return MOSQ_ERR_SUCCESS;
	default:
		return MOSQ_ERR_ACL_DENIED;
	}
}

/* The same check as on writing, for the case that another plug-in allowed the write before this one was asked. */
static int on_message(int event UNUSED, void *data, void *self)
{
	struct plugin *plugin = self;
	struct mosquitto_evt_message *message = data;
	if (!is_sealed(plugin, message->topic))
		return MOSQ_ERR_SUCCESS;
	return check_write(plugin, message->client, message->topic, message->payload, message->payloadlen);
}

static int on_tick(int event UNUSED, void *data UNUSED, void *self)
{
	look_for_a_new_table(self);
	return MOSQ_ERR_SUCCESS;
}

int mosquitto_plugin_version(int count, const int *versions)
{
	for (int i = 0; i < count; i++)
		if (versions[i] == MOSQ_PLUGIN_VERSION)
			return MOSQ_PLUGIN_VERSION;
	return -1;
}

static void close_plugin(struct plugin *plugin)
{
	matcher_close(&plugin->matcher);
	free(plugin->path);
	free(plugin->prefix);
	free(plugin);
}

static int read_options(struct plugin *plugin, const struct mosquitto_opt *options, int count)
{
	for (int i = 0; i < count; i++) {
		const char *key = options[i].key, *why = "given twice";
		char **kept = NULL;
		if (!strcmp(key, "table"))
			kept = &plugin->path;
		else if (!strcmp(key, "prefix"))
			kept = &plugin->prefix;
		else
			why = "no option";
		if (!kept || *kept) {
			mosquitto_log_printf(MOSQ_LOG_ERR, "sealcast: plugin_opt_%s is %s", key, why);
			return MOSQ_ERR_INVAL;
		}
		if (!(*kept = strdup(options[i].value)))
			return MOSQ_ERR_NOMEM;
	}
	return MOSQ_ERR_SUCCESS;
}

/* Starting without a table would refuse everybody, and mosquitto drops what waits for a client that it then refuses. */
static int start(struct plugin *plugin)
{
	if (!plugin->path) {
		mosquitto_log_printf(MOSQ_LOG_ERR, "sealcast: plugin_opt_table is missing");
		return MOSQ_ERR_INVAL;
	}
	if (!plugin->prefix && !(plugin->prefix = strdup(DEFAULT_PREFIX)))
		return MOSQ_ERR_NOMEM;
	if (!*plugin->prefix || plugin->prefix[strlen(plugin->prefix) - 1] != '/' || strpbrk(plugin->prefix, "+#$")) {
		mosquitto_log_printf(MOSQ_LOG_ERR, "sealcast: plugin_opt_prefix has to end in / and cannot have +, # or $");
		return MOSQ_ERR_INVAL;
	}
	if (!matcher_open(&plugin->matcher))
		return MOSQ_ERR_NOMEM;
	if (stat(plugin->path, &plugin->seen))
		memset(&plugin->seen, 0, sizeof plugin->seen);
	if (!load(plugin))
		return MOSQ_ERR_INVAL;
	int rc = mosquitto_callback_register(plugin->id, MOSQ_EVT_ACL_CHECK, on_acl_check, NULL, plugin);
	if (!rc)
		rc = mosquitto_callback_register(plugin->id, MOSQ_EVT_MESSAGE, on_message, NULL, plugin);
	if (!rc)
		rc = mosquitto_callback_register(plugin->id, MOSQ_EVT_TICK, on_tick, NULL, plugin);
	return rc;
}

int mosquitto_plugin_init(mosquitto_plugin_id_t *id, void **self, struct mosquitto_opt *options, int count)
{
	struct plugin *plugin = calloc(1, sizeof *plugin);
	if (!plugin)
		return MOSQ_ERR_NOMEM;
	plugin->id = id;
	int rc = read_options(plugin, options, count);
	if (!rc)
		rc = start(plugin);
	if (rc)
		close_plugin(plugin);
	else
		*self = plugin;
	return rc;
}

int mosquitto_plugin_cleanup(void *self, struct mosquitto_opt *options UNUSED, int count UNUSED)
{
	struct plugin *plugin = self;
	if (!plugin)
		return MOSQ_ERR_SUCCESS;
	mosquitto_callback_unregister(plugin->id, MOSQ_EVT_ACL_CHECK, on_acl_check, NULL);
	mosquitto_callback_unregister(plugin->id, MOSQ_EVT_MESSAGE, on_message, NULL);
	mosquitto_callback_unregister(plugin->id, MOSQ_EVT_TICK, on_tick, NULL);
	close_plugin(plugin);
	return MOSQ_ERR_SUCCESS;
}
