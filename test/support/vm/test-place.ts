import { constants } from 'node:os'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { LocalHolder } from '../../../src/host/instance/holder/local-holder.ts'
import { INSTANCE_LIMITS } from '../../../src/host/instance/limits.ts'
import type { Plan } from '../../../src/host/instance/machine/plan.ts'
import { hostPlan, runFolderOf } from '../../../src/host/instance/open-host-instances.ts'
import { openInstances } from '../../../src/host/instance/open-instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../src/host/qemu/qmp/connect.ts'
import type { GuestLink } from '../../../src/host/qemu/vsock/guest-link.ts'
import { openSecrets } from '../../../src/host/secrets/secrets.ts'
import { CallJournal } from '../../../src/host/service/call-journal.ts'
import { openApi } from '../../../src/host/service/open-api.ts'
import { ownPlace, type Place } from '../../../src/microvm/run/boot-guest.ts'
import { sleep, startTimer } from '../../../src/os/clock.ts'

export interface ChildExit {
  readonly code: number | undefined
  readonly signal: NodeJS.Signals | undefined
}

export interface TestPlace extends Place {
  /** How QEMU has ended. */
  readonly exited: Promise<ChildExit>
  /** A session with QEMU beside that of the service. */
  qmp(signal: AbortSignal): Promise<QmpClient>
}

interface TestPlaceOptions {
  readonly folder: string
  readonly link: GuestLink
  /** QEMU is started inside it, where its tap interfaces are. */
  readonly networkNamespace?: string | undefined
}

/** The service of `./microvm run`, with a second monitor of QEMU. */
export async function testPlace({ folder, link, networkNamespace }: TestPlaceOptions): Promise<TestPlace> {
  const log = silentLogger()
  const registry = memoryRegistry()
  const monitor = join(folder, 'test-qmp.sock')
  const exited = Promise.withResolvers<ChildExit>()
  const instances = await openInstances({
    stateFolder: folder,
    onlyFolder: runFolderOf(folder),
    registry,
    log,
    isKept: false,
    isWalled: false,
    plan: testPlan(monitor, networkNamespace),
    holders: {
      start: async (own) => {
        const holder = new LocalHolder(own)
        holder.onExit(({ name, exit }) => {
          if (name === 'qemu') exited.resolve({ code: exit?.code, signal: signalName(exit?.signal) })
        })
        return holder
      },
      find: async () => undefined,
      kill: async () => {},
    },
    links: { exists: () => false, isRoutable: () => true, connect: async () => {} },
    filters: { check: async () => {}, apply: async () => {}, run: async () => {} },
    clock: { sleep, startTimer, monotonicMs: () => performance.now() },
    limits: INSTANCE_LIMITS,
  })
  const journal = await CallJournal.open({ registry, nowMs: Date.now, log })
  const api = openApi({
    instances,
    secrets: await openSecrets(join(folder, 'secrets')),
    journal,
    tenants: [],
    log,
  })
  const socket = join(folder, 'api.sock')
  await api.listen(socket)
  const close = async () => {
    await instances.close()
    await api.close()
  }
  const own = ownPlace({ folder, link, service: { socket, close } })
  return {
    ...own,
    // A vsock device of the test's own is not the way to the agent.
    address: ({ devices, ...others }, cid) =>
      own.address({ ...others, devices: link.backend.kind === 'user-network' ? {} : devices }, cid),
    exited: exited.promise,
    qmp: (signal) => connectQmp(monitor, signal),
  }
}

function testPlan(monitor: string, namespace: string | undefined): Plan {
  const plan = hostPlan({ log: silentLogger(), acceleration: process.env.MICROVM_ACCEL, isKept: false })
  const enter = namespace === undefined ? [] : ['nsenter', `--net=${namespace}`, '--']
  const words = ['-chardev', `socket,id=test,path=${monitor},server=on,wait=off`, '-mon', 'test,mode=control']
  return async (record, folder) =>
    (await plan(record, folder)).map((step) => {
      const [program, ...args] = [...enter, ...(step.argv ?? []), ...words]
      return step.step === 'qemu' && program !== undefined ? { ...step, argv: [program, ...args] } : step
    })
}

function signalName(number: number | undefined): NodeJS.Signals | undefined {
  const entries = Object.entries(constants.signals) as readonly [NodeJS.Signals, number][]
  return entries.find(([, each]) => each === number)?.[0]
}
