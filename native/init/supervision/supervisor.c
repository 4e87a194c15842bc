#define _GNU_SOURCE
#include "supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../channel/channel.h"
#include "../clock.h"
#include "../kept/freeze.h"
#include "../kept/store.h"
#include "../log.h"
#include "../power-button.h"
#include "../power-off.h"
#include "agent-end.h"
#include "agent.h"
#include "broker-process.h"
#include "diagnosis.h"
#include "reap.h"
#include "restart-policy.h"
#include "signals.h"

/* No time is set. */
#define NEVER (-1)

#define STOP_TIMEOUT_MS 20000

/* Time for an agent that hangs to report its stack, before it is killed. */
#define HUNG_TIMEOUT_MS 2000

/* Time for the host to read the last answers: the power-off loses the others. */
#define LEAVE_TIMEOUT_MS 2500

/* Processes reaped and commands handled before the loop turns to its other work. */
#define REAP_BATCH 1024
#define COMMAND_BATCH 64

/* More commands than a dead agent's socket can hold. */
#define LAST_COMMANDS 65536

/* Wrapper mode: the agent must not be restarted, not even by vminit's parent. */
#define EXIT_NO_RESTART 3

struct supervisor {
  bool init_mode;
  const char *program;
  struct agent agent;
  struct broker_process broker;
  struct channel channel;
  struct store store;
  struct freeze freeze;
  struct restart_policy policy;
  struct restart_policy broker_policy;
  unsigned restarts;
  int64_t start_at_ms;
  int64_t broker_at_ms; /* the broker starts no earlier */
  int64_t stop_by_ms;
  int64_t kill_at_ms; /* when a hung agent is killed, or NEVER */
  bool end_requested; /* by a signal: vminit ends with the agent */
  bool ends_with_agent;
  bool gate_opened;
};

static noreturn void leave_and_power_off(struct supervisor *self) {
  freeze_thaw_now(&self->freeze);
  broker_process_leave(&self->broker, LEAVE_TIMEOUT_MS);
  power_off();
}

static noreturn void terminate(struct supervisor *self, int exit_status) {
  freeze_thaw_now(&self->freeze);
  if (!self->init_mode) exit(exit_status);
  log_line("powering off");
  leave_and_power_off(self);
}

/* Plans a restart. Terminates after too many delayed ones. */
static void restart(struct supervisor *self, int status, bool at_once) {
  char end[END_TEXT_BYTES];
  describe_end(status, end);
  int64_t now = monotonic_ms();
  int64_t delay = at_once ? 0 : restart_delay_ms(&self->policy, now);
  if (delay < 0) {
    log_line("the agent %s, after %d restarts within %d s: giving up", end, RESTART_LIMIT, RESTART_WINDOW_MS / 1000);
    terminate(self, shell_status(status));
  }
  self->restarts++;
  if (now + delay < self->broker_at_ms) delay = self->broker_at_ms - now;
  self->start_at_ms = now + delay;
  log_line("the agent %s: restart %u in %lld ms", end, self->restarts, (long long)delay);
}

static void follow_agent_end(struct supervisor *self, int status) {
  const struct agent_end end = {
      .status = status,
      .init_mode = self->init_mode,
      .end_requested = self->end_requested,
      .not_executed = *self->agent.start_errno != 0,
      .ends_with_agent = self->ends_with_agent,
      .gate_opened = self->gate_opened,
      .is_first = self->restarts == 0,
  };
  char text[END_TEXT_BYTES];
  describe_end(status, text);
  switch (after_agent(&end)) {
    case END_AS_REQUESTED:
      if (self->init_mode) log_line("the agent ended without asking for the power-off");
      terminate(self, shell_status(status));
    case END_NOT_EXECUTABLE:
    case END_FINISHED:
    case END_WRONG_SETTINGS:
      terminate(self, shell_status(status));
    case END_POLICY_LOST:
      log_line("the agent %s, and must not be restarted: its policy is lost", text);
      terminate(self, EXIT_NO_RESTART);
    case RESTART_AT_ONCE:
      restart(self, status, true);
      return;
    case RESTART_DELAYED:
      restart(self, status, false);
  }
}

static bool try_start_agent(struct supervisor *self) {
  int control[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0) return false;
  bool started = channel_open(&self->channel);
  if (started) {
    struct agent_launch launch = {
        .restarts = self->restarts,
        .channel_fd = self->channel.agent_fd,
        .broker_fd = control[0],
        .store = &self->store,
    };
    started = agent_start(&self->agent, &launch);
  }
  int error = errno;
  /* A broker that takes no message is useless. Its end ends the agent, too. */
  if (started && !broker_process_announce(&self->broker, self->agent.pid, control[1])) kill(self->broker.pid, SIGKILL);
  /* An agent needs the broker before it serves: a broker that hangs would end all agents that follow. */
  broker_process_ping(&self->broker);
  close(control[0]);
  close(control[1]);
  errno = error;
  return started;
}

static void start_agent(struct supervisor *self) {
  self->start_at_ms = NEVER;
  self->gate_opened = false;
  const char *what = "the broker";
  if (self->broker.pid != 0 || broker_process_start(&self->broker)) {
    if (try_start_agent(self)) return;
    what = self->program;
    channel_close(&self->channel);
  }
  log_line("cannot start %s: %s", what, strerror(errno));
  follow_agent_end(self, W_EXITCODE(EXIT_FAILURE, 0));
}

static void answer_about_store(struct supervisor *self, const struct record *record, int result) {
  if (record->result == ONLY_REFUSAL && result == 0) return;
  channel_answer(&self->channel, RECORD_STORE_RESULT, record->name, result);
}

static void store_descriptor(struct supervisor *self, const struct record *record, int *passed) {
  int result = store_put(&self->store, record->name, *passed);
  if (result == 0) *passed = -1;
  answer_about_store(self, record, result);
}

static void obey_freeze(struct supervisor *self, const struct record *record, int *passed) {
  static const char no_name[RECORD_NAME_BYTES];
  int result;
  if (!freeze_obey(&self->freeze, record, passed, &result)) return;
  channel_answer(&self->channel, RECORD_FREEZE_RESULT, record->kind == RECORD_ARM_THAW ? no_name : record->name,
                 result);
}

static void handle_command(struct supervisor *self, const struct record *record, int *passed) {
  if (record->version != RECORD_VERSION) {
    log_line("ignored a command of version %u: only version %d is known", record->version, RECORD_VERSION);
    return;
  }
  switch (record->kind) {
    case RECORD_POWER_OFF:
      if (self->init_mode) leave_and_power_off(self);
      log_line("ignored a power-off: this vminit is not the init of a guest");
      break;
    case RECORD_END_WITH_AGENT:
      self->ends_with_agent = true;
      break;
    case RECORD_STORE:
      store_descriptor(self, record, passed);
      break;
    case RECORD_UNSTORE:
      answer_about_store(self, record, store_remove(&self->store, record->name));
      break;
    case RECORD_ACK_EXITS:
      ring_acknowledge(&self->channel.ring, record->sequence);
      break;
    case RECORD_KEEP_EXIT:
      channel_keep_exit(&self->channel, record->pid);
      break;
    case RECORD_FORGET_EXIT:
      channel_forget_exit(&self->channel, record->pid);
      break;
    case RECORD_GATE_OPENED:
      self->gate_opened = true;
      restart_policy_reset(&self->policy);
      break;
    case RECORD_CHECK_BROKER:
      broker_process_ping(&self->broker);
      break;
    case RECORD_HOLD_FILE_SYSTEM:
    case RECORD_HOLD_CGROUP:
    case RECORD_ARM_THAW:
    case RECORD_FREEZE:
    case RECORD_THAW:
      obey_freeze(self, record, passed);
      break;
    default:
      log_line("ignored a command of unknown kind %u", record->kind);
  }
}

static void handle_commands(struct supervisor *self, int limit) {
  struct record record;
  int passed;
  for (int i = 0; i < limit && channel_receive(&self->channel, &record, &passed); i++) {
    handle_command(self, &record, &passed);
    if (passed >= 0) close(passed);
  }
}

static void on_agent_exit(struct supervisor *self, int status) {
  /* Commands sent before the exit count: a descriptor is stored from the moment it was sent. */
  channel_drain(&self->channel);
  handle_commands(self, LAST_COMMANDS);
  self->agent.pid = 0;
  self->kill_at_ms = NEVER;
  channel_close(&self->channel);
  /* The next agent must find containers as they run, and disks that take writes. */
  freeze_thaw_now(&self->freeze);
  if (*self->agent.start_errno != 0) log_line("cannot run %s: %s", self->program, strerror(*self->agent.start_errno));
  follow_agent_end(self, status);
}

/* The clients' connections are gone, so the agent is killed, too. */
static void on_broker_exit(struct supervisor *self, int status) {
  char end[END_TEXT_BYTES];
  describe_end(status, end);
  broker_process_ended(&self->broker);
  freeze_thaw(&self->freeze, true);
  int64_t now = monotonic_ms();
  int64_t delay = restart_delay_ms(&self->broker_policy, now);
  if (delay < 0) {
    log_line("the broker %s, after %d restarts within %d s: giving up", end, RESTART_LIMIT, RESTART_WINDOW_MS / 1000);
    terminate(self, EXIT_FAILURE);
  }
  log_line("the broker %s: it starts again with the next agent", end);
  self->broker_at_ms = now + delay;
  if (self->start_at_ms != NEVER && self->start_at_ms < self->broker_at_ms) self->start_at_ms = self->broker_at_ms;
  /* An agent that stops in order needs no connections. */
  if (self->agent.pid != 0 && !self->end_requested) kill(self->agent.pid, SIGKILL);
}

static void on_hung(struct supervisor *self) {
  if (self->kill_at_ms != NEVER) return;
  log_line("the agent hangs, and is killed in %d ms", HUNG_TIMEOUT_MS);
  log_kernel_stack(self->agent.pid);
  /* Makes it write its JavaScript stack (native/addon/hang-report.c). */
  kill(self->agent.pid, SIGUSR2);
  freeze_thaw(&self->freeze, true);
  self->kill_at_ms = monotonic_ms() + HUNG_TIMEOUT_MS;
}

static void on_hung_timeout(struct supervisor *self) {
  self->kill_at_ms = NEVER;
  kill(self->agent.pid, SIGKILL);
}

static bool reap_batch(struct supervisor *self) {
  struct record record;
  for (int i = 0; i < REAP_BATCH; i++) {
    if (!reap_one(&record)) return false;
    if (record.pid == self->agent.pid) {
      on_agent_exit(self, record.status);
    } else if (record.pid == self->broker.pid) {
      on_broker_exit(self, record.status);
    } else {
      channel_publish_exit(&self->channel, &record);
    }
  }
  return true;
}

/* In init mode every signal requests the shutdown. Only the first has an effect. */
static void request_shutdown(struct supervisor *self, int number) {
  if (self->end_requested) return;
  self->end_requested = true;
  self->stop_by_ms = monotonic_ms() + STOP_TIMEOUT_MS;
  freeze_thaw(&self->freeze, true);
  channel_publish_shutdown(&self->channel, number);
}

static void on_signal(struct supervisor *self, const struct signalfd_siginfo *info) {
  int number = (int)info->ssi_signo;
  if (number == SIGCHLD) return; /* it only wakes the loop */
  bool requests_end = self->init_mode || signal_requests_end(number);
  if (self->agent.pid == 0) {
    if (!requests_end) return;
    log_line("asked to stop by signal %d while no agent runs", number);
    terminate(self, 128 + number);
  }
  if (self->init_mode) {
    request_shutdown(self, number);
    return;
  }
  if (requests_end) self->end_requested = true;
  if (signal_is_from_process(info)) kill(self->agent.pid, number);
}

static noreturn void on_stop_timeout(struct supervisor *self) {
  log_line("the agent did not stop within %d s", STOP_TIMEOUT_MS / 1000);
  terminate(self, EXIT_FAILURE);
}

static void look_at_broker(struct supervisor *self, int64_t now_ms) {
  if (self->broker.look_at_ms == 0 || now_ms < self->broker.look_at_ms) return;
  if (!broker_process_hangs(&self->broker, now_ms)) return;
  log_kernel_stack(self->broker.pid);
  kill(self->broker.pid, SIGKILL);
}

static void run_expired_timers(struct supervisor *self) {
  int64_t now = monotonic_ms();
  look_at_broker(self, now);
  if (self->stop_by_ms != NEVER && now >= self->stop_by_ms) on_stop_timeout(self);
  if (self->kill_at_ms != NEVER && now >= self->kill_at_ms) on_hung_timeout(self);
  if (self->start_at_ms != NEVER && now >= self->start_at_ms) start_agent(self);
}

static void tell_of_freezes(struct supervisor *self) {
  struct record record;
  while (channel_can_answer(&self->channel) && freeze_take(&self->freeze, &record))
    channel_answer(&self->channel, record.kind, record.name, record.result);
}

static int poll_timeout(const struct supervisor *self) {
  const int64_t look_at_ms = self->broker.look_at_ms == 0 ? NEVER : self->broker.look_at_ms;
  const int64_t times[] = {self->start_at_ms, self->stop_by_ms, self->kill_at_ms, look_at_ms};
  int64_t next = NEVER;
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    if (times[i] != NEVER && (next == NEVER || times[i] < next)) next = times[i];
  if (next == NEVER) return -1;
  int64_t wait = next - monotonic_ms();
  return wait > 0 ? (int)wait : 0;
}

noreturn void supervise(bool init_mode, char *const command[]) {
  static struct supervisor supervisor; /* in BSS, where unused tables take no memory */
  struct supervisor *self = &supervisor;
  self->init_mode = init_mode;
  self->program = command[0];
  self->start_at_ms = monotonic_ms();
  self->stop_by_ms = self->kill_at_ms = NEVER;
  self->broker.fd = -1;
  channel_prepare(&self->channel);
  freeze_prepare(&self->freeze);
  int signals = signals_open(init_mode);
  if (signals < 0 || !agent_prepare(&self->agent, command, init_mode)) {
    log_line("cannot begin: %s", strerror(errno));
    terminate(self, EXIT_FAILURE);
  }
  const int button = init_mode ? power_button_open() : -1;
  for (;;) {
    run_expired_timers(self);
    bool more = reap_batch(self);
    tell_of_freezes(self);
    channel_flush(&self->channel);
    short events = channel_events(&self->channel);
    struct pollfd polled[] = {
        {.fd = signals, .events = POLLIN},
        {.fd = events == 0 ? -1 : self->channel.fd, .events = events},
        {.fd = self->broker.fd, .events = POLLIN},
        {.fd = button, .events = POLLIN},
    };
    poll(polled, 4, more ? 0 : poll_timeout(self));
    /* The signal of a power failure: the shutdown is the same. */
    if (polled[3].revents != 0 && power_button_pressed(button)) raise(SIGPWR);
    struct signalfd_siginfo info;
    while (signals_next(signals, &info)) on_signal(self, &info);
    handle_commands(self, COMMAND_BATCH);
    if (broker_process_reports_hung(&self->broker, self->agent.pid) && self->agent.pid != 0) on_hung(self);
  }
}
