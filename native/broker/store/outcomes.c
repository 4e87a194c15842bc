#include "outcomes.h"

#include <stddef.h>

void outcomes_prepare(struct outcomes *outcomes, struct outcome *table, uint32_t count) {
  *outcomes = (struct outcomes){.table = table, .capacity = count};
}

static struct outcome *oldest_settled(const struct outcomes *outcomes) {
  struct outcome *outcome = outcomes->oldest;
  while (outcome->state == REQUEST_ANSWERED) outcome = outcome->newer;
  return outcome;
}

static struct outcome *take_unused(struct outcomes *outcomes) {
  if (outcomes->unused == NULL && outcomes->used < outcomes->capacity) return &outcomes->table[outcomes->used++];
  /* There is a settled one, because there are more outcomes than the broker can store answers. */
  if (outcomes->unused == NULL) outcome_forget(outcomes, oldest_settled(outcomes));
  struct outcome *outcome = outcomes->unused;
  outcomes->unused = outcome->newer;
  return outcome;
}

struct outcome *outcome_add(struct outcomes *outcomes, uint64_t number, enum request_state state) {
  struct outcome *outcome = take_unused(outcomes);
  *outcome = (struct outcome){.number = number, .older = outcomes->newest, .state = state, .told = NEVER};
  if (outcomes->newest == NULL)
    outcomes->oldest = outcome;
  else
    outcomes->newest->newer = outcome;
  outcomes->newest = outcome;
  return outcome;
}

struct outcome *outcome_find(const struct outcomes *outcomes, uint64_t number) {
  struct outcome *outcome = outcomes->oldest;
  while (outcome != NULL && outcome->number != number) outcome = outcome->newer;
  return outcome;
}

void outcome_forget(struct outcomes *outcomes, struct outcome *outcome) {
  if (outcome->older == NULL)
    outcomes->oldest = outcome->newer;
  else
    outcome->older->newer = outcome->newer;
  if (outcome->newer == NULL)
    outcomes->newest = outcome->older;
  else
    outcome->newer->older = outcome->older;
  outcome->newer = outcomes->unused;
  outcomes->unused = outcome;
}

void outcome_confirm(struct outcomes *outcomes, uint64_t number) {
  struct outcome *outcome = outcome_find(outcomes, number);
  if (outcome != NULL && outcome->state != REQUEST_ANSWERED && outcome->told == (int)outcome->state)
    outcome_forget(outcomes, outcome);
}

struct outcome *outcome_untold(const struct outcomes *outcomes, const struct connection *connection) {
  struct outcome *outcome = outcomes->oldest;
  while (outcome != NULL && (outcome->connection != connection || outcome->state == REQUEST_ANSWERED ||
                             outcome->told == (int)outcome->state))
    outcome = outcome->newer;
  return outcome;
}

void outcomes_leave(struct outcomes *outcomes, const struct connection *connection) {
  for (struct outcome *outcome = outcomes->oldest; outcome != NULL; outcome = outcome->newer)
    if (outcome->connection == connection) outcome->connection = NULL;
}

void outcome_tell_again(struct outcomes *outcomes, uint64_t number) {
  struct outcome *outcome = outcome_find(outcomes, number);
  if (outcome != NULL) outcome->told = NEVER;
}

void outcomes_tell_again(struct outcomes *outcomes) {
  for (struct outcome *outcome = outcomes->oldest; outcome != NULL;) {
    struct outcome *newer = outcome->newer;
    outcome->told = NEVER;
    if (outcome->forgotten_when_told) outcome_forget(outcomes, outcome);
    outcome = newer;
  }
}
