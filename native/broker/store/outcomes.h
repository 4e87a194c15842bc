#pragma once

#include "../state.h"

/* Prepares `count` unused outcomes in a zeroed table, which only outcomes that are used touch. */
void outcomes_prepare(struct outcomes *outcomes, struct outcome *table, uint32_t count);

/*
 * Adds an outcome that has not been told. When all are in use, the oldest that is settled is forgotten: an agent that
 * confirms nothing loses what it could have known.
 */
struct outcome *outcome_add(struct outcomes *outcomes, uint64_t number, enum request_state state);

void outcome_forget(struct outcomes *outcomes, struct outcome *outcome);

/* Forgets an outcome that the agent has been told; any other number is ignored. */
void outcome_confirm(struct outcomes *outcomes, uint64_t number);

/* The oldest outcome that `connection` has to tell, or NULL. */
struct outcome *outcome_untold(const struct outcomes *outcomes, const struct connection *connection);

/* The connection's outcomes are told over the control socket from now on. */
void outcomes_leave(struct outcomes *outcomes, const struct connection *connection);

/* What the agent was to be told did not reach it. */
void outcome_tell_again(struct outcomes *outcomes, uint64_t number);

/* A new agent has been told nothing. */
void outcomes_tell_again(struct outcomes *outcomes);
