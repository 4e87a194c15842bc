import { AgentError } from '../../base/errors.ts'
import type { VmSpec } from '../spec/spec.ts'
import { blockDevicesOf } from './block-devices.ts'
import { type Child, type ChildExit, describeExit, startChild } from './child.ts'
import { ConsoleTail } from './console-tail.ts'
import { type Acceleration, hostTscKhz } from './host.ts'
import { qemuArguments } from './qemu-arguments.ts'
import { QmpClient } from './qmp/client.ts'

/** Descriptor 3 of a child is the socket to the runner. */
const QMP_FD = 3
/** QEMU greets as soon as its event loop runs. */
const GREETING_TIMEOUT_MS = 30_000

export interface Vm {
  readonly pid: number
  readonly qmp: QmpClient
  readonly console: ConsoleTail
  /** Resolves when QEMU has ended, whatever the reason; never rejects. */
  readonly exited: Promise<ChildExit>
  /** Fires when QEMU has ended, with an UNAVAILABLE error that says how. */
  readonly gone: AbortSignal
  /** Waits until a guest that was asked to power off has done so; after `graceMs` it ends QEMU. */
  awaitPowerOff(graceMs: number): Promise<void>
  kill(): Promise<void>
}

/**
 * Starts QEMU for `spec`. Rejects with INVALID_ARGUMENT when no machine can be made from `spec`, and with UNAVAILABLE
 * and QEMU's own words when QEMU ends before its greeting.
 */
export async function startVm(spec: VmSpec, acceleration: Acceleration): Promise<Vm> {
  const facts = { acceleration, tscKhz: hostTscKhz(), blockDevices: blockDevicesOf(spec) }
  const args = qemuArguments(spec, { ...facts, qmp: { fd: QMP_FD } })
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
    // How QEMU ended says more than the end of its QMP connection.
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
