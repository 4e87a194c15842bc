import { messageOf } from '../base/errors.ts'

/** The kernel's words when the guest has no memory left. Those about one cgroup write `out` in lower case. */
const KERNEL_WORDS =
  /Out of memory: Killed process|System is deadlocked on memory|Initramfs unpacking failed: write error/

/** Whether the guest has run out of memory, by the last lines of its console. */
export function hasRunOutOfMemory(consoleLines: readonly string[]): boolean {
  return consoleLines.some((line) => KERNEL_WORDS.test(line))
}

/** Whether a call has failed in the guest for want of memory, by the words of the kernel, runc or crun in its answer. */
export function isWantOfMemory(error: unknown): boolean {
  return /cannot allocate memory|OOM-killed/i.test(messageOf(error))
}
