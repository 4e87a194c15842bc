#pragma once

#include "state.h"

/* Reads what the agent has sent for this connection: at most one answer, as far as there is room. */
void data_read(struct broker *broker, struct connection *connection);

/* Whether all that the agent has sent was read. */
bool data_is_empty(const struct connection *connection);

/* Reads all that an agent has sent that is gone. */
void data_drain(struct broker *broker, struct connection *connection);

/* Whether there is room for the answer that waits for some. */
bool data_has_room(const struct broker *broker, const struct connection *connection);

/* Sends the agent the outcomes and requests of this connection, as far as it takes them. */
void data_send(struct broker *broker, struct connection *connection);

/* Sends the next one, or the rest of one. Returns whether there may be more to send. */
bool data_send_one(struct broker *broker, struct connection *connection);
