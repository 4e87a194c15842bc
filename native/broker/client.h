#pragma once

#include "state.h"

/* Waits for clients at the listening socket, or retries after a pause. */
void clients_listen(struct broker *broker);

void clients_accept(struct broker *broker);

/* Reads some frames, as far as there is room. */
void client_read(struct broker *broker, struct connection *connection);

bool client_may_read(const struct broker *broker, const struct connection *connection);

void client_write(struct broker *broker, struct connection *connection);
