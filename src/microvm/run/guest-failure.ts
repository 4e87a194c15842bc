import { AgentError, messageOf } from '../../base/errors.ts'
import type { Guest } from './boot-guest.ts'

/** QEMU ends within moments of the guest's connections. */
const QEMU_END_MS = 2000

/** A failure of the guest, with its console. */
export class GuestFailure extends Error {
  readonly consoleLines: readonly string[]

  constructor(cause: unknown, consoleLines: readonly string[]) {
    super(messageOf(cause), { cause })
    this.consoleLines = consoleLines
  }
}

/** Replaces the error of a failed call by the guest's failure, unless the guest still works. */
export async function lossOf(error: unknown, guest: Pick<Guest, 'lockUp' | 'vm'>): Promise<unknown> {
  if (!(error instanceof AgentError)) return error
  if (error.code === 'DEADLINE_EXCEEDED') return await lockUpOr(error, guest)
  if (error.code === 'UNAVAILABLE') return await endOr(error, guest)
  return error
}

async function lockUpOr(error: unknown, { lockUp }: Pick<Guest, 'lockUp'>): Promise<unknown> {
  const text = await lockUp.describe()
  return text === undefined ? error : new AgentError('UNAVAILABLE', text, { cause: error })
}

/** How QEMU ended, when the connection was lost with it: QEMU closes its devices first. */
async function endOr(error: unknown, { vm }: Pick<Guest, 'vm'>): Promise<unknown> {
  if (vm.gone.aborted) return error
  await vm.awaitEnd(QEMU_END_MS)
  if (vm.gone.aborted) return vm.gone.reason
  return new AgentError('UNAVAILABLE', 'the connection to the guest is lost, and QEMU runs on', {
    cause: error,
  })
}

/**
 * The error with which a run ends whose guest was started with `memoryMib`. It is a {@link GuestFailure} with the reason that
 * the console gives, unless the agent itself has answered: then the guest works, and its console has nothing to add.
 */
export function runFailure(error: unknown, consoleLines: readonly string[], memoryMib: number): unknown {
  const outOfMemory = `the guest ran out of memory: it has ${memoryMib} MiB; give it more with --memory`
  if (isAnswer(error)) {
    if (!isWantOfMemory(error)) return error
    return new AgentError(error.code, `${messageOf(error)}; ${outOfMemory}`, { cause: error })
  }
  const reason = hasRunOutOfMemory(consoleLines)
    ? new Error(outOfMemory, { cause: error })
    : reasonOf(error, consoleLines)
  return new GuestFailure(reason, consoleLines)
}

function isAnswer(error: unknown): error is AgentError {
  return error instanceof AgentError && error.code !== 'UNAVAILABLE' && error.code !== 'DEADLINE_EXCEEDED'
}

/** Why the guest failed: an agent that cannot start writes one line that begins with `agent: `, and the guest ends. */
function reasonOf(error: unknown, consoleLines: readonly string[]): unknown {
  const line = consoleLines.findLast((each) => each.startsWith('agent: '))
  if (line !== undefined) return new Error(`the agent did not start: ${line.slice('agent: '.length)}`)
  const panic = consoleLines
    .map((each) => PANIC.exec(each)?.groups?.reason)
    .find((each) => each !== undefined)
  return panic === undefined ? error : new Error(`the guest's kernel panicked: ${panic}`, { cause: error })
}

/** The words of the kernel's panic() (kernel/panic.c). */
const PANIC = /Kernel panic - not syncing: (?<reason>.*)/

export function containerOutOfMemoryText(memoryMib: number): string {
  return `the container ran out of memory, in a guest of ${memoryMib} MiB; give it more with --memory`
}

/** The kernel's words when the guest has no memory left. Those about one cgroup write `out` in lower case. */
const KERNEL_WORDS =
  /Out of memory: Killed process|System is deadlocked on memory|Initramfs unpacking failed: write error/

function hasRunOutOfMemory(consoleLines: readonly string[]): boolean {
  return consoleLines.some((line) => KERNEL_WORDS.test(line))
}

/** Finds the words of the kernel, runc or crun in the answer. */
function isWantOfMemory(error: unknown): boolean {
  return /cannot allocate memory|OOM-killed/i.test(messageOf(error))
}
