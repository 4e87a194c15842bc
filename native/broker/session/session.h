#pragma once

#include "../state.h"

/* Begins the session of a new agent, and ends the previous one. */
void session_begin(struct broker *broker, int control, uint32_t pid);

/* Handles the agent's control messages. The end of the socket is the agent's death. */
void session_read(struct broker *broker);

void session_flush(struct broker *broker);

/* Gives the agent the file of a request, ahead of its envelope. Returns false if it must be tried again later. */
bool session_send_file(struct broker *broker, const struct frame *request);

/* Handles the agent's faults, retries and late PONGs. */
void session_expire(struct broker *broker, int64_t now_ms);

/* The time of the session's next work, or NEVER. */
int64_t session_next_ms(const struct broker *broker);
