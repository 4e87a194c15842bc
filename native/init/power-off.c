#define _GNU_SOURCE
#include "power-off.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "log.h"
#include "sync.h"

#define CONSOLE_DRAIN_SECONDS 2

/* The time limit for all file systems together: one with a dead server or disk never ends. */
#define SYNC_MS 10000

static void on_alarm(int number) {
  (void)number;
}

/* Waits for the console's last line, with a limit, because maybe no program reads the console. */
static void drain_console(void) {
  struct sigaction action = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &action, NULL);
  alarm(CONSOLE_DRAIN_SECONDS);
  tcdrain(STDERR_FILENO);
  alarm(0);
}

noreturn void power_off(void) {
  kill(-1, SIGKILL); /* no process may write after the sync */
  sync_file_systems(SYNC_MS);
  drain_console();
  reboot(RB_POWER_OFF);
  log_line("cannot power off: %s", strerror(errno));
  for (;;) {
    if (wait(NULL) < 0) pause();
  }
}

noreturn void boot_failed(const char *format, ...) {
  char reason[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  log_line("%s: powering off", reason);
  power_off();
}
