#pragma once

#include "state.h"

/*
 * To be called before a client is closed. While the agent stops, ends what is sent to the client, but keeps its connection:
 * what the host has not taken yet would be lost with a guest that powers off.
 */
void leave_keep(struct broker *broker, const struct connection *connection);

/* Closes the connections that were kept: an agent goes on. */
void leave_undo(struct broker *broker);

/* Ends what is sent to all clients, and waits until each has hung up, which it does once it has read everything. */
void leave_clients(struct broker *broker, int timeout_ms);
