/* On SIGUSR2, writes the running JavaScript functions to stderr, even when they block the event loop. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>

#include "functions.h"
#include "napi/call.h"

/* Functions of V8 and Node that Node-API lacks. They are weak: without them the addon loads, and reports no stack. */
#define WEAK(symbol) __asm__(symbol) __attribute__((weak))
extern void *current_isolate(void) WEAK("_ZN2v87Isolate10GetCurrentEv");
extern void request_interrupt(void *isolate, void (*callback)(void *isolate, void *data), void *data)
    WEAK("_ZN2v87Isolate16RequestInterruptEPFvPS0_PvES2_");
extern void dump_stack(FILE *file) WEAK("_ZN4node23DumpJavaScriptBacktraceEP8_IO_FILE");

/* Process-wide, because a signal handler has no argument. */
static sem_t asked;
static void *main_isolate;

static void on_signal(int number) {
  (void)number;
  int error = errno;
  sem_post(&asked);
  errno = error;
}

/* Runs on the main thread as an interrupt of V8. */
static void report(void *isolate, void *data) {
  (void)isolate;
  (void)data;
  dump_stack(stderr);
}

/* A thread requests the interrupt, which takes locks: a signal handler must not. */
static void *wait_for_signal(void *data) {
  (void)data;
  for (;;)
    if (sem_wait(&asked) == 0) request_interrupt(main_isolate, report, NULL);
  return NULL;
}

static int start_thread(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, NULL, wait_for_signal, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error == 0) pthread_detach(thread);
  return error;
}

static int begin(void) {
  if (main_isolate != NULL) return 0;
  if (current_isolate == NULL || request_interrupt == NULL || dump_stack == NULL) return ENOSYS;
  void *isolate = current_isolate();
  if (isolate == NULL || sem_init(&asked, 0, 0) != 0) return ENOSYS;
  main_isolate = isolate;
  int error = start_thread();
  if (error != 0) return error;
  const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  return sigaction(SIGUSR2, &action, NULL) == 0 ? 0 : errno;
}

static int64_t report_stack_on_signal(struct call *call) {
  (void)call;
  errno = begin();
  return errno == 0 ? 0 : -1;
}

const struct addon_function hang_report_functions[] = {
    {"reportStackOnSignal", "", report_stack_on_signal, false},
    {0},
};
