#pragma once

#include "state.h"

/* Accepts the clients that wait at the listening socket. */
void clients_accept(struct broker *broker);

/* Reads what the client has sent: at most one frame, as far as there is room. */
void client_read(struct broker *broker, struct connection *connection);

/* Whether client_read could do anything. */
bool client_may_read(const struct broker *broker, const struct connection *connection);

/* Writes stored answers, as far as the client takes them. */
void client_write(struct broker *broker, struct connection *connection);

/*
 * Whether a client whose deadline has passed is to blame. A client within a payload that is not read for want of room, or that
 * has sent what is not read yet, gets another deadline.
 */
bool client_is_late(struct broker *broker, struct connection *connection);
