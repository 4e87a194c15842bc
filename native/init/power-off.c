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

#include "message.h"

#define CONSOLE_DRAIN_SECONDS 2

static void interrupt(int number) {
  (void)number;
}

/* Lets the console's last line out, but does not wait for a console that nobody reads. */
static void drain_console(void) {
  struct sigaction action = {.sa_handler = interrupt};
  sigaction(SIGALRM, &action, NULL);
  alarm(CONSOLE_DRAIN_SECONDS);
  tcdrain(STDERR_FILENO);
  alarm(0);
}

noreturn void power_off(void) {
  kill(-1, SIGKILL); /* so that nothing writes after the sync */
  sync();
  drain_console();
  reboot(RB_POWER_OFF);
  say("cannot power off: %s", strerror(errno));
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
  say("%s: powering off", reason);
  power_off();
}
