#pragma once

#include "../state.h"

/*
 * Whether the agent still answers. After it was sent a request it is asked by PING; the time without its PONG is counted in
 * looks, so that one in which the whole machine stood still does not count.
 */

/* A new agent: nothing was asked yet. */
void hang_begin(struct session *session);

/* The agent was sent a request, and should be asked. */
void hang_want_ping(struct broker *broker);

/* Whether it should be asked now. */
bool hang_is_ping_due(const struct broker *broker, int64_t now_ms);

/* When it next should be asked, or NEVER. */
int64_t hang_next_ping_ms(const struct session *session);

/* Begins to count the time without an answer, unless it is counted. */
void hang_begin_wait(struct broker *broker, int64_t now_ms);

/* The next PING was sent. */
void hang_ping_sent(struct session *session, int64_t now_ms);

/* The agent has answered PING `number`. */
void hang_got_pong(struct session *session, uint64_t number);

/* Counts the time without an answer if a look is due. At the limit the open requests are logged, and vminit is told. */
void hang_look(struct broker *broker, int64_t now_ms);
