/** Signals that the agent sends or treats specially; the numbers are the same on x86-64 and arm64 (signal(7)). */
export const SIGKILL = 9
export const SIGTERM = 15
/** The largest signal number (SIGRTMAX). */
export const LAST_SIGNAL = 64
