#define _GNU_SOURCE
#include "supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#include "agent-life.h"
#include "clock.h"
#include "message.h"
#include "reaper.h"
#include "signals.h"

/* Between two sends, and between two looks at signals and commands. */
#define REAP_BATCH 1024

/* Returns whether there may be more. */
static bool reap_batch(struct supervisor *self) {
  struct record record;
  for (int i = 0; i < REAP_BATCH; i++) {
    if (!reap_one(&record)) return false;
    if (record.pid == self->agent.pid) {
      on_agent_exit(self, record.status);
    } else {
      channel_publish_exit(&self->channel, &record);
    }
  }
  return true;
}

/* Init mode: every signal means shutdown, and the first one counts. */
static void ask_agent_to_stop(struct supervisor *self, int number) {
  if (self->asked_to_end) return;
  self->asked_to_end = true;
  self->stop_by_ms = monotonic_ms() + STOP_GRACE_MS;
  channel_publish_shutdown(&self->channel, number);
}

static void on_signal(struct supervisor *self, const struct signalfd_siginfo *info) {
  int number = (int)info->ssi_signo;
  if (number == SIGCHLD) return; /* it only wakes the loop */
  bool asks_to_end = self->init_mode || signal_asks_to_end(number);
  if (self->agent.pid == 0) {
    if (!asks_to_end) return;
    say("asked to stop by signal %d while no agent runs", number);
    finish(self, 128 + number);
  }
  if (self->init_mode) {
    ask_agent_to_stop(self, number);
    return;
  }
  if (asks_to_end) self->asked_to_end = true;
  if (signal_is_for_us_alone(info)) kill(self->agent.pid, number);
}

static void on_patience_ended(struct supervisor *self) {
  self->stop_by_ms = NEVER;
  say("the agent did not stop within %d s", STOP_GRACE_MS / 1000);
  if (self->init_mode) finish(self, EXIT_FAILURE);
  /* It runs: had it ended, so had vminit. Its exit will end the wrapper with the status it commanded. */
  kill(self->agent.pid, SIGKILL);
}

static void do_what_is_due(struct supervisor *self) {
  int64_t now = monotonic_ms();
  if (self->stop_by_ms != NEVER && now >= self->stop_by_ms) on_patience_ended(self);
  if (self->start_at_ms != NEVER && now >= self->start_at_ms) start_agent(self);
}

/* Milliseconds until something is due, as poll takes them. */
static int time_to_wait(const struct supervisor *self) {
  int64_t due = self->start_at_ms;
  if (due == NEVER || (self->stop_by_ms != NEVER && self->stop_by_ms < due)) due = self->stop_by_ms;
  if (due == NEVER) return -1;
  int64_t wait = due - monotonic_ms();
  return wait > 0 ? (int)wait : 0;
}

noreturn void supervise(bool init_mode, char *const command[]) {
  static struct supervisor supervisor; /* zeroed, and in BSS because the ring is large */
  struct supervisor *self = &supervisor;
  self->init_mode = init_mode;
  self->command = command;
  self->start_at_ms = monotonic_ms();
  self->stop_by_ms = NEVER;
  self->commanded_status = NEVER;
  channel_prepare(&self->channel);
  int signals = signals_open(init_mode);
  if (signals < 0 || !agent_prepare(&self->agent)) {
    say("cannot begin: %s", strerror(errno));
    finish(self, EXIT_FAILURE);
  }
  for (;;) {
    do_what_is_due(self);
    bool more = reap_batch(self);
    channel_flush(&self->channel);
    short events = channel_events(&self->channel);
    struct pollfd polled[] = {
        {.fd = signals, .events = POLLIN},
        {.fd = events == 0 ? -1 : self->channel.fd, .events = events},
    };
    poll(polled, 2, more ? 0 : time_to_wait(self));
    struct signalfd_siginfo info;
    while (signals_next(signals, &info)) on_signal(self, &info);
    obey_commands(self);
  }
}
