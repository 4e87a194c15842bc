#include "outcomes.h"

#include <stddef.h>

void outcomes_prepare(struct outcomes *outcomes, struct outcome *table, uint32_t count) {
  *outcomes = (struct outcomes){.table = table, .capacity = count};
  TAILQ_INIT(&outcomes->all);
}

static struct outcome *oldest_settled(const struct outcomes *outcomes) {
  struct outcome *outcome = TAILQ_FIRST(&outcomes->all);
  while (outcome->state == REQUEST_ANSWERED) outcome = TAILQ_NEXT(outcome, entry);
  return outcome;
}

static struct outcome *take_unused(struct outcomes *outcomes) {
  if (outcomes->unused == NULL && outcomes->used < outcomes->capacity) return &outcomes->table[outcomes->used++];
  /* A settled one exists, because the table is larger than the store of answers. */
  if (outcomes->unused == NULL) outcome_forget(outcomes, oldest_settled(outcomes));
  struct outcome *outcome = outcomes->unused;
  outcomes->unused = TAILQ_NEXT(outcome, entry);
  return outcome;
}

struct outcome *outcome_add(struct outcomes *outcomes, uint64_t number, enum request_state state) {
  struct outcome *outcome = take_unused(outcomes);
  *outcome = (struct outcome){.number = number, .state = state, .told = NEVER};
  TAILQ_INSERT_TAIL(&outcomes->all, outcome, entry);
  return outcome;
}

static struct outcome *find(const struct outcomes *outcomes, uint64_t number) {
  struct outcome *outcome;
  TAILQ_FOREACH(outcome, &outcomes->all, entry) if (outcome->number == number) break;
  return outcome;
}

void outcome_forget(struct outcomes *outcomes, struct outcome *outcome) {
  TAILQ_REMOVE(&outcomes->all, outcome, entry);
  TAILQ_NEXT(outcome, entry) = outcomes->unused;
  outcomes->unused = outcome;
}

void outcome_confirm(struct outcomes *outcomes, uint64_t number) {
  struct outcome *outcome = find(outcomes, number);
  if (outcome != NULL && outcome->state != REQUEST_ANSWERED && outcome->told == (int)outcome->state)
    outcome_forget(outcomes, outcome);
}

struct outcome *outcome_untold(const struct outcomes *outcomes, const struct connection *connection) {
  struct outcome *outcome;
  TAILQ_FOREACH(outcome, &outcomes->all, entry) {
    bool is_settled = outcome->state != REQUEST_ANSWERED;
    if (outcome->connection == connection && is_settled && outcome->told != (int)outcome->state) break;
  }
  return outcome;
}

void outcomes_leave(struct outcomes *outcomes, const struct connection *connection) {
  struct outcome *outcome;
  TAILQ_FOREACH(outcome, &outcomes->all, entry) if (outcome->connection == connection) outcome->connection = NULL;
}

void outcome_tell_again(struct outcomes *outcomes, uint64_t number) {
  struct outcome *outcome = find(outcomes, number);
  if (outcome != NULL) outcome->told = NEVER;
}

void outcomes_tell_again(struct outcomes *outcomes) {
  for (struct outcome *outcome = TAILQ_FIRST(&outcomes->all), *newer; outcome != NULL; outcome = newer) {
    newer = TAILQ_NEXT(outcome, entry);
    outcome->told = NEVER;
    if (outcome->forgotten_when_told) outcome_forget(outcomes, outcome);
  }
}
