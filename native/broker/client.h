#pragma once

#include "state.h"

/* Waits for clients at the listening socket, from now on or after a pause. */
void clients_listen(struct broker *broker);

/* Accepts the clients that wait at the listening socket. */
void clients_accept(struct broker *broker);

/* Reads what the client has sent: at most one frame, as far as there is room. */
void client_read(struct broker *broker, struct connection *connection);

/* Whether client_read could do anything. */
bool client_may_read(const struct broker *broker, const struct connection *connection);

/* Writes stored answers, as far as the client takes them. */
void client_write(struct broker *broker, struct connection *connection);
