#pragma once

#include "../state.h"

/* An agent with this control socket and pid has started. Ends what is left of the one before. */
void session_begin(struct broker *broker, int control, uint32_t pid);

/* Handles what the agent has sent over the control socket. Its end is the agent's death. */
void session_read(struct broker *broker);

/* Sends the agent what the control socket takes. */
void session_flush(struct broker *broker);

/* Handles what is due: the agent's faults, a next try to give it its connections, and a PONG that is late. */
void session_expire(struct broker *broker, int64_t now_ms);

/* When the session next has something to do, or NEVER. */
int64_t session_next_ms(const struct broker *broker);
