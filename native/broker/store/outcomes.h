#pragma once

#include "../state.h"

/* `table` has `count` zeroed entries. Unused entries take no memory. */
void outcomes_prepare(struct outcomes *outcomes, struct outcome *table, uint32_t count);

/* Adds an untold outcome. If all are in use, forgets the oldest settled one, which no agent has confirmed. */
struct outcome *outcome_add(struct outcomes *outcomes, uint64_t number, enum request_state state);

void outcome_forget(struct outcomes *outcomes, struct outcome *outcome);

/* Forgets an outcome that the agent was told. Ignores any other number. */
void outcome_confirm(struct outcomes *outcomes, uint64_t number);

/* Returns the connection's oldest untold outcome, or NULL. */
struct outcome *outcome_untold(const struct outcomes *outcomes, const struct connection *connection);

/* From now on the control socket tells the connection's outcomes. */
void outcomes_leave(struct outcomes *outcomes, const struct connection *connection);

/* Marks an outcome as untold, because it did not reach the agent. */
void outcome_tell_again(struct outcomes *outcomes, uint64_t number);

/* Marks all outcomes as untold, for a new agent. */
void outcomes_tell_again(struct outcomes *outcomes);
