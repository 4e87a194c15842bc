#pragma once

#include "state.h"

/* Clients accepted per round, and spare places: a round may still have events of connections that it has ended. */
#define ACCEPT_BATCH 64

/* Returns false with errno set. */
bool connections_open(struct broker *broker, uint32_t count);

/* Closes the accepted socket when there are too many connections. */
void connection_begin(struct broker *broker, int client, const struct peer *peer);

struct connection *connection_find(struct broker *broker, uint64_t id);

/* Makes the end of the round write and send what it can. */
void connection_touch(struct broker *broker, struct connection *connection);

/* Closes the client's socket, drops its requests, and settles its answers as dropped. */
void connection_hang_up(struct broker *broker, struct connection *connection);
/* The same after an event or an error of the client's socket: a reset is the loss of its device. */
void connection_lose_client(struct broker *broker, struct connection *connection, int error);

void connection_end(struct broker *broker, struct connection *connection);

/* Detaches a dead agent: requests without an answer are open again. */
void connection_lose_agent(struct broker *broker, struct connection *connection);

void connection_close_request(struct broker *broker, struct connection *connection, struct frame *request);

/* Removes the first answer and records its outcome. */
void connection_settle_answer(struct broker *broker, struct connection *connection, enum request_state state);

void connection_close_file(struct connection *connection);

/* The frame must be in no list. */
void connection_release(struct broker *broker, struct frame *frame, enum pool pool);

bool connection_has_room(const struct broker *broker, const struct connection *connection, enum pool pool,
                         uint32_t blocks);
void connection_reserve(struct broker *broker, struct connection *connection, enum pool pool, uint32_t blocks);

/* The time NEVER removes the deadline. */
void connection_set_deadline(struct broker *broker, struct connection *connection, int64_t deadline_ms);

void connections_expire(struct broker *broker, int64_t now_ms);

/* Tells outcomes that have waited TELL_MS for a request. */
void connections_tell(struct broker *broker, int64_t now_ms);
