#define _GNU_SOURCE
#include "tool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "process-defaults.h"

#define EXIT_NOT_PREPARED 125
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127

int run_tool(const char *program, char *const command[]) {
  if (!reset_oom_score()) {
    say("tool: /proc/self/oom_score_adj: %s", strerror(errno));
    return EXIT_NOT_PREPARED;
  }
  if (!reset_open_files_limit()) {
    say("tool: RLIMIT_NOFILE: %s", strerror(errno));
    return EXIT_NOT_PREPARED;
  }
  reset_signals();
  execvp(program, command);
  int error = errno;
  say("tool: cannot run %s: %s", program, strerror(error));
  return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}
