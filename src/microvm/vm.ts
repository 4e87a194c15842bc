import { AgentError } from '../base/errors.ts'
import type { Acceleration } from './acceleration.ts'
import { type Child, type ChildExit, describeExit, startChild } from './child.ts'
import { ConsoleTail } from './console-tail.ts'
import { hostTscKhz } from './host-tsc.ts'
import { qemuArguments } from './qemu-arguments.ts'
import { QmpClient } from './qmp/client.ts'
import type { VmSpec } from './spec.ts'

/** Descriptor 3 of a child is the socket it shares with the runner. */
const QMP_FD = 3
/** QEMU greets as soon as its event loop runs. */
const GREETING_TIMEOUT_MS = 30_000

/** One running QEMU. Made by {@link startVm}; whoever made it ends it with `powerOff` or `kill`. */
export interface Vm {
  readonly pid: number
  readonly qmp: QmpClient
  readonly console: ConsoleTail
  /** Resolves when QEMU has ended, for whatever reason. */
  readonly exited: Promise<ChildExit>
  /** Aborted when QEMU has ended, with an UNAVAILABLE error that says how. */
  readonly gone: AbortSignal
  /** Waits until the guest has powered itself off, as it was told to; after `graceMs` QEMU is ended. */
  awaitPowerOff(graceMs: number): Promise<void>
  /** Ends QEMU at once and waits for its end. */
  kill(): Promise<void>
}

/**
 * Starts QEMU for `spec`. Rejects with INVALID_ARGUMENT for a specification no machine can be made from, and with
 * UNAVAILABLE, naming QEMU's own words, when QEMU ends before it greets.
 */
export async function startVm(spec: VmSpec, acceleration: Acceleration): Promise<Vm> {
  const args = qemuArguments(spec, { acceleration, qmpFd: QMP_FD, tscKhz: hostTscKhz() })
  const { networkNamespace: namespace } = spec
  const command = ['qemu-system-x86_64', ...args] as const
  const inside = ['nsenter', `--net=${namespace}`, '--', ...command] as const
  const qemu = await startChild('QEMU', namespace === undefined ? command : inside)
  const complaints = new ConsoleTail(qemu.stderr)
  const console = new ConsoleTail(qemu.stdout)
  const gone = new AbortController()
  const exited = qemu.exited.then((exit) => {
    const words = complaints.lines.length > 0 ? `: ${complaints.lines.join(' ')}` : ''
    gone.abort(new AgentError('UNAVAILABLE', `QEMU ${describeExit(exit)}${words}`))
    return exit
  })
  try {
    const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(GREETING_TIMEOUT_MS)])
    const qmp = await QmpClient.open(qemu.channel, signal)
    return vmOf(qemu, { qmp, console, exited, gone: gone.signal })
  } catch (error) {
    await qemu.kill()
    await exited
    // QMP only noticed that its connection ended; how QEMU ended says more.
    throw gone.signal.reason ?? error
  }
}

function vmOf(qemu: Child, parts: Pick<Vm, 'qmp' | 'console' | 'exited' | 'gone'>): Vm {
  const kill = async () => {
    parts.qmp.close()
    await qemu.kill()
    await parts.exited
  }
  return {
    ...parts,
    pid: qemu.pid,
    kill,
    awaitPowerOff: async (graceMs) => {
      const late = AbortSignal.timeout(graceMs)
      const waited = Promise.withResolvers<void>()
      late.addEventListener('abort', () => waited.resolve(), { once: true })
      await Promise.race([parts.exited, waited.promise])
      await kill()
    },
  }
}
