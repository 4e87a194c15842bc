#define _GNU_SOURCE
#include "agent-life.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "clock.h"
#include "message.h"
#include "power-off.h"

#define COMMAND_BATCH 64
#define EXIT_USAGE 2

/* The exit status by which a shell would report a wait status. */
static int shell_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

noreturn void finish(const struct supervisor *self, int exit_status) {
  if (!self->init_mode) exit(exit_status);
  say("powering off");
  power_off();
}

static void restart_or_finish(struct supervisor *self, int status) {
  const char *how = WIFSIGNALED(status) ? "was killed by signal" : "exited with status";
  int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  int64_t now = monotonic_ms();
  int64_t delay = restart_delay_ms(&self->policy, now);
  if (delay < 0) {
    say("the agent %s %d, after %d restarts within %d s: giving up", how, number, RESTART_LIMIT,
        RESTART_WINDOW_MS / 1000);
    finish(self, shell_status(status));
  }
  self->restarts++;
  self->start_at_ms = now + delay;
  say("the agent %s %d: restart %u in %lld ms", how, number, self->restarts, (long long)delay);
}

void start_agent(struct supervisor *self) {
  self->start_at_ms = NEVER;
  if (channel_open(&self->channel)) {
    struct agent_launch launch = {
        .command = self->command,
        .init_mode = self->init_mode,
        .restarts = self->restarts,
        .channel_fd = self->channel.agent_fd,
    };
    if (agent_start(&self->agent, &launch)) return;
  }
  say("cannot start %s: %s", self->command[0], strerror(errno));
  channel_close(&self->channel);
  restart_or_finish(self, W_EXITCODE(EXIT_FAILURE, 0));
}

static void obey(struct supervisor *self, const struct record *record) {
  if (record->version != RECORD_VERSION) {
    say("ignored a command of version %u: only version %d is known", record->version, RECORD_VERSION);
  } else if (record->kind == RECORD_POWER_OFF && self->init_mode) {
    power_off();
  } else if (record->kind == RECORD_POWER_OFF) {
    say("ignored a power-off: this vminit is not the init of a guest");
  } else if (record->kind == RECORD_EXIT_WITH && self->init_mode) {
    power_off();
  } else if (record->kind == RECORD_EXIT_WITH) {
    self->commanded_status = record->status & 0xff; /* as exit(3) does */
    self->stop_by_ms = monotonic_ms() + STOP_GRACE_MS;
  } else {
    say("ignored a command of unknown kind %u", record->kind);
  }
}

void obey_commands(struct supervisor *self) {
  struct record record;
  for (int i = 0; i < COMMAND_BATCH && channel_receive(&self->channel, &record); i++) obey(self, &record);
}

void on_agent_exit(struct supervisor *self, int status) {
  obey_commands(self); /* its last words */
  self->agent.pid = 0;
  channel_close(&self->channel);
  if (self->commanded_status != NEVER) finish(self, self->commanded_status);
  if (*self->agent.start_errno != 0) {
    say("cannot run %s: %s", self->command[0], strerror(*self->agent.start_errno));
    /* A program that has never run will not run the next time either. */
    if (self->restarts == 0) finish(self, shell_status(status));
  }
  if (self->asked_to_end) {
    if (self->init_mode) say("the agent ended without asking for the power-off");
    finish(self, shell_status(status));
  }
  bool meant = WIFEXITED(status) && (WEXITSTATUS(status) == EXIT_SUCCESS || WEXITSTATUS(status) == EXIT_USAGE);
  if (meant && !self->init_mode) finish(self, WEXITSTATUS(status));
  restart_or_finish(self, status);
}
