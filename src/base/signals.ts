/** Numbers of signals that the agent sends or treats specially (signal(7)); the same on x86-64 and arm64. */
export const SIGKILL = 9
export const SIGTERM = 15
/** The largest signal number (SIGRTMAX). */
export const LAST_SIGNAL = 64
