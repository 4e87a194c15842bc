#pragma once

#include "state.h"

/* To be called before a client is closed: during a stop, keeps its connection, from which the host may still read. */
void leave_keep(struct broker *broker, const struct connection *connection);

/* Closes the kept connections, because a new agent serves. */
void leave_undo(struct broker *broker);

/* shutdown(2) for all clients, then waits until each has read everything and hung up. */
void leave_clients(struct broker *broker, int timeout_ms);
