#pragma once

#include "state.h"

/*
 * The most clients that one round accepts. The table has so many more places than there may be connections, because a
 * place becomes unused at the end of a round: the round may still have events of the connection that ended.
 */
#define ACCEPT_BATCH 64

/* Maps the table of connections. Returns false with errno set. */
bool connections_open(struct broker *broker, uint32_t count);

/* Makes a connection of an accepted socket, or closes it when there are too many. */
void connection_begin(struct broker *broker, int client, const struct peer *peer);

/* The open connection with this id, or NULL. */
struct connection *connection_find(struct broker *broker, uint64_t id);

/* Writes and sends what can be at the end of the round. */
void connection_touch(struct broker *broker, struct connection *connection);

/* Ends what the client was waiting for, and closes its socket. What the agent must be told is told. */
void connection_hang_up(struct broker *broker, struct connection *connection);

/* Closes all that is left of a connection without a client. */
void connection_end(struct broker *broker, struct connection *connection);

/* The agent with the other end of the data socket is gone: requests that it has not answered are open again. */
void connection_lose_agent(struct broker *broker, struct connection *connection);

/* Takes an open request out of all lists, and frees it. */
void connection_close_request(struct broker *broker, struct connection *connection, struct frame *request);

/* The first answer is over. */
void connection_settle_answer(struct broker *broker, struct connection *connection, enum request_state state);

/* Closes the file of an answer, if there is one. */
void connection_close_file(struct connection *connection);

/* Returns the blocks of a frame that is in no list. */
void connection_release(struct broker *broker, struct frame *frame, enum pool pool);

bool connection_has_room(const struct broker *broker, const struct connection *connection, enum pool pool,
                         uint32_t blocks);
void connection_reserve(struct broker *broker, struct connection *connection, enum pool pool, uint32_t blocks);

/* NEVER ends the deadline. */
void connection_set_deadline(struct broker *broker, struct connection *connection, int64_t deadline_ms);

/* Closes the clients whose deadline has passed. */
void connections_expire(struct broker *broker, int64_t now_ms);

/* Tells the outcomes that have waited for a request. */
void connections_tell(struct broker *broker, int64_t now_ms);
