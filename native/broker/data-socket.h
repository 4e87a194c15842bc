#pragma once

#include "state.h"

/* Reads some answers, as far as there is room. */
void data_read(struct broker *broker, struct connection *connection);

bool data_is_empty(const struct connection *connection);

/* Reads everything that a dead agent has sent. */
void data_drain(struct broker *broker, struct connection *connection);

bool data_has_room(const struct broker *broker, const struct connection *connection);

/* Sends the agent the connection's outcomes and requests, as far as it takes them. */
void data_send(struct broker *broker, struct connection *connection);

/* Makes one sendmsg(2) for them. Returns whether there may be more to send. */
bool data_send_one(struct broker *broker, struct connection *connection);
