import { AgentError } from '../../base/errors.ts'
import { LAST_SIGNAL, SIGKILL, SIGTERM } from '../../base/signals.ts'
import type { SignalProcessRequest } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import type { Found } from '../container/registry.ts'
import type { SandboxContext } from '../sandbox/context.ts'

/** SignalProcess (behaviour spec, section C.5). Never waits for a transition: it must get through to a hanging one. */
export async function signalProcess(context: SandboxContext, request: SignalProcessRequest): Promise<void> {
  const { containerId, execId, signal } = request
  if (signal > LAST_SIGNAL) throw new AgentError('INVALID_ARGUMENT', `there is no signal ${signal}`)
  if (execId === '' && signal === SIGKILL) {
    const { parts } = context.containers.get(containerId, 'INTERNAL')
    return parts.cgroup.killAll()
  }
  const found = context.containers.get(containerId, 'INVALID_ARGUMENT')
  const process = found.parts.processes.get(execId)
  const sent = process === found.parts.init ? await signalForInit(context.os, found, signal) : signal
  // Only now: it may have ended meanwhile, and the number of a process that was reaped may be another's.
  if (process.status === undefined) killIfAlive(context.os, process.pid, sent)
}

/** What a process executes; undefined when that cannot be told, or it has ended. */
export async function programOf({ files }: Os, pid: number): Promise<string | undefined> {
  return files.readLink(`/proc/${pid}/exe`).catch(() => undefined)
}

/**
 * A SIGTERM that the container's first process would not notice becomes SIGKILL. One that still waits to be started,
 * or was told to start this moment, is the runtime's own program, whose handlers say nothing.
 */
async function signalForInit(os: Os, { container, parts }: Found, signal: number): Promise<number> {
  if (signal !== SIGTERM) return signal
  if (container.awaitsStart) return SIGKILL
  const program = await programOf(os, parts.init.pid)
  if (program !== undefined && program === parts.programBeforeStart) return SIGKILL
  const status = await os.files.readText(`/proc/${parts.init.pid}/status`).catch(() => undefined)
  return handlesSignal(status, SIGTERM) ? SIGTERM : SIGKILL
}

const MASKS = ['SigBlk', 'SigIgn', 'SigCgt']

/**
 * Whether a process does something of its own with a signal: blocks, ignores or catches it, from the text of its
 * `/proc/PID/status` (undefined when it could not be read). The kernel drops signals that the first process of a
 * pid namespace leaves at their default, so only a handled SIGTERM can end it (behaviour spec, section C.5).
 */
export function handlesSignal(status: string | undefined, signal: number): boolean {
  if (status === undefined || signal > LAST_SIGNAL) return false
  if (signal === 0) return true
  const bit = 1n << BigInt(signal - 1)
  return MASKS.some((name) => (maskIn(status, name) & bit) !== 0n)
}

/** The mask of that name; 0 when there is none or it is no hexadecimal number. */
function maskIn(status: string, name: string): bigint {
  const line = status.split('\n').find((candidate) => candidate.startsWith(`${name}:`))
  const digits = line?.slice(name.length + 1).trim() ?? ''
  return /^[0-9a-fA-F]+$/.test(digits) ? BigInt(`0x${digits}`) : 0n
}
