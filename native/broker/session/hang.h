#pragma once

#include "../state.h"

/* Finds out by HELLO and PINGs whether the agent hangs. Time in which the whole machine stood still does not count. */

/* Starts to count the wait for HELLO. */
void hang_begin(struct broker *broker);

/* Called when the agent was sent a request. */
void hang_want_ping(struct broker *broker);

bool hang_is_ping_due(const struct broker *broker, int64_t now_ms);

/* Returns the time of the next PING, or NEVER. */
int64_t hang_next_ping_ms(const struct session *session);

/* Starts to count the wait for a PONG, unless it is counted already. */
void hang_begin_wait(struct broker *broker, int64_t now_ms);

void hang_ping_sent(struct session *session, int64_t now_ms);

void hang_got_pong(struct session *session, uint64_t number);

/* Counts the wait if a check is due. At the limit, logs the open requests and reports the agent to vminit. */
void hang_look(struct broker *broker, int64_t now_ms);
