import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../base/errors.ts'
import { undoAndThrow } from '../../base/undo.ts'
import { connectAgent } from '../../client/connection/connect-agent.ts'
import { dial } from '../../client/connection/dial.ts'
import { type DaemonClient, openDaemon } from '../../client/daemon/daemon-client.ts'
import {
  Backend,
  Device,
  File_Access,
  type Specification,
  type Template,
} from '../../gen/microvm/instance/v1/instance.ts'
import { LockUpWatch } from '../../host/qemu/lock-up.ts'
import { specKey } from '../../host/spec/spec-key.ts'
import { specToProto } from '../../host/spec/to-proto.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { type Guest, keptByDaemon } from './boot-guest.ts'
import { type GuestParts, guestSpec } from './guest-spec.ts'
import type { Reporter, Timings } from './reporter.ts'
import { makeMachine, type RunMachine } from './run-machine.ts'

export interface WarmOptions {
  /** With the container's root, which may be written. */
  readonly parts: Omit<GuestParts, 'link'>
  /** The daemon's. */
  readonly socket: string
  readonly key: string
  readonly started: (vm: RunMachine) => void
  readonly reporter: Pick<Reporter, 'progress' | 'wait'>
  readonly timings: Pick<Timings, 'end'>
  readonly signal: AbortSignal
}

/** Where the container's root is plugged in: on q35 in a root port that the template has, on pc in a free slot. */
const SLOT = 5
const PORT = specKey('container-port')
const ROOT = { device: 'container-root', backend: 'container-root-file' } as const

/** The source by which the agent finds the container's root disk: its PCI path. */
export function warmRootSource({ machine }: Pick<GuestParts, 'machine'>): string {
  const slot = SLOT.toString(16).padStart(2, '0')
  return machine === 'pc' ? slot : `${slot}/00`
}

/** Throws {@link UsageError} for a root of the guest that clones cannot share. */
export function checkWarmRoot({ root }: GuestParts['boot']): void {
  if (root === undefined || root.type === 'erofs' || root.interface === 'nvdimm') return
  throw new UsageError(`--warm: a guest may write to the ${root.type} of --image, want erofs`)
}

/**
 * Takes a clone of the daemon's template of such a guest, which is made when there is none, and gives it the container's root. On
 * failure the clone is removed.
 */
export async function warmGuest(options: WarmOptions): Promise<Guest> {
  const { key, parts, signal, socket, started, timings } = options
  const template = await withDaemon(socket, signal, (daemon) => readyTemplate(daemon, options))
  timings.end('template')
  const vm = await makeMachine({
    socket,
    key,
    init: { saved: { name: template, folder: '', replaceComponents: {}, identity: undefined } },
    signal,
  })
  try {
    started(vm)
    const device = Device.fromPartial({
      ...(parts.machine === 'pc' ? { slot: SLOT } : { port: PORT }),
      ...{ backend: ROOT.backend, disk: { serial: 'container' } },
    })
    const file = { path: parts.containerRoot ?? '', access: File_Access.READ_WRITE }
    await vm.plug(ROOT.device, device, Backend.fromPartial({ file }), signal)
    const address = { kind: 'instance', socket, key } as const
    const connect = (limit: AbortSignal) => dial(address, limit)
    const connection = await connectAgent({ connect }, AbortSignal.any([signal, vm.gone]))
    timings.end('clone')
    const close = async () => {
      connection.close()
      await vm.close()
    }
    return { vm, connection, address, lockUp: new LockUpWatch(vm), connect, close }
  } catch (error) {
    return await undoAndThrow(error, vm.close)
  }
}

async function withDaemon<T>(
  socket: string,
  signal: AbortSignal,
  work: (daemon: DaemonClient) => Promise<T>,
): Promise<T> {
  const daemon = await openDaemon(socket, signal)
  try {
    return await work(daemon)
  } finally {
    daemon.close()
  }
}

/** The same machine without the container's root, which differs from run to run. */
function templateSpecification(parts: WarmOptions['parts']): Specification {
  const port = { kind: 'root-port', slot: SLOT } as const
  const extra = { devices: parts.machine === 'pc' ? {} : { [PORT]: port }, backends: {} }
  return keptByDaemon(specToProto(guestSpec({ ...parts, containerRoot: undefined, link: undefined, extra })))
}

/** Between two looks at a template that is being made. */
const LOOK_MS = 100

/** Resolves with the name of the template once it is ready. Rejects with why it cannot be made. */
async function readyTemplate(
  { calls }: DaemonClient,
  { parts, reporter, signal }: WarmOptions,
): Promise<string> {
  const specification = templateSpecification(parts)
  let template = await calls.ensureTemplate({ specification })
  const { name } = template
  if (isReady(template)) return name
  reporter.progress(`making ${name}, of which later runs are clones`)
  for (let step = ''; ; ) {
    const endWait = reporter.wait(`${name}: step ${template.step}`)
    step = template.step
    try {
      while (template.step === step && step !== '') {
        await delay(LOOK_MS, undefined, { signal })
        template = await lookAt(calls, name)
      }
    } finally {
      endWait()
    }
    if (template.failure !== '')
      throw new AgentError('FAILED_PRECONDITION', `${name} was not made: ${template.failure}`)
    if (isReady(template)) return name
  }
}

function isReady({ failure, step }: Template): boolean {
  return step === '' && failure === ''
}

async function lookAt(calls: DaemonClient['calls'], name: string): Promise<Template> {
  const { templates } = await calls.listTemplates({})
  const found = templates.find((each) => each.name === name)
  if (found !== undefined) return found
  throw new AgentError('ABORTED', `${name}: removed while it was waited for`)
}
