import { AgentError } from '../../base/errors.ts'
import { LAST_SIGNAL, SIGKILL, SIGTERM } from '../../base/signals.ts'
import type { SignalProcessRequest } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import type { Call } from '../../state/request.ts'
import type { ProcessOwner, ProcessOwners } from './owner.ts'

export type SignalOs = Pick<Os, 'files' | 'scratch' | 'system'>

/**
 * SignalProcess. It waits for no transition of the container, so that it can end a start which hangs. Only SIGKILL to all
 * processes or to the first one may be sent twice.
 */
export async function signalProcess(
  { os, containers }: { readonly os: SignalOs; readonly containers: Pick<ProcessOwners, 'get'> },
  { containerId, execId, signal }: SignalProcessRequest,
  call: Pick<Call, 'beforeEffect'>,
): Promise<void> {
  checkSignal(signal)
  if (execId === '' && signal === SIGKILL) {
    const { parts } = containers.get(containerId, 'INTERNAL')
    return parts.cgroup.killAll()
  }
  const { container, parts } = containers.get(containerId, 'INVALID_ARGUMENT')
  const process = parts.processes.get(execId)
  const isInit = process === parts.init
  const sent = isInit ? await signalForInit(os, parts, container.awaitsStart, signal) : signal
  // Check last: the process may have ended meanwhile, and its pid may be reused.
  if (process.status !== undefined) return
  if (!isInit || sent !== SIGKILL) call.beforeEffect()
  killIfAlive(os, process.pid, sent)
}

/** Throws INVALID_ARGUMENT for an unknown signal. */
export function checkSignal(signal: number): void {
  if (signal > LAST_SIGNAL)
    throw new AgentError('INVALID_ARGUMENT', `signal: unknown number ${signal}, want at most ${LAST_SIGNAL}`)
}

/** The executable of a process; undefined when it has ended or the link cannot be read. */
export async function programOf({ scratch }: Pick<Os, 'scratch'>, pid: number): Promise<string | undefined> {
  return scratch.readLink(`/proc/${pid}/exe`).catch(() => undefined)
}

/**
 * SIGTERM to the first process becomes SIGKILL unless the process catches, ignores or blocks it. A process that awaits its start, or was just told to start, still is
 * the runtime's own program, whose handlers do not count.
 */
async function signalForInit(
  os: SignalOs,
  { init, programBeforeStart }: ProcessOwner,
  awaitsStart: boolean,
  signal: number,
): Promise<number> {
  if (signal !== SIGTERM) return signal
  if (awaitsStart) return SIGKILL
  const program = await programOf(os, init.pid)
  if (program !== undefined && program === programBeforeStart) return SIGKILL
  const status = await os.files.readText(`/proc/${init.pid}/status`).catch(() => undefined)
  return handlesSignal(status, SIGTERM) ? SIGTERM : SIGKILL
}

const MASKS = ['SigBlk', 'SigIgn', 'SigCgt']

/**
 * Whether a process blocks, ignores or catches a signal, by its `/proc/PID/status`. The kernel drops signals that the first
 * process of a pid namespace leaves at their default (pid_namespaces(7)), so a SIGTERM at its default would be lost.
 */
export function handlesSignal(status: string | undefined, signal: number): boolean {
  if (status === undefined || signal > LAST_SIGNAL) return false
  if (signal === 0) return true
  const bit = 1n << BigInt(signal - 1)
  return MASKS.some((name) => (maskIn(status, name) & bit) !== 0n)
}

function maskIn(status: string, name: string): bigint {
  const line = status.split('\n').find((candidate) => candidate.startsWith(`${name}:`))
  const digits = line?.slice(name.length + 1).trim() ?? ''
  return /^[0-9a-fA-F]+$/.test(digits) ? BigInt(`0x${digits}`) : 0n
}
