import {
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { ADMIN } from '../requests.ts'
import { LIFE, type LifePlan } from './life.ts'

/** What a life of devices with daemons needs besides. */
export interface DaemonLifePlan extends LifePlan {
  /** The request's machine has this network behind the replaceable card. */
  readonly tap: Backend
  readonly shared: string
  /** The kinds of the daemons of devices that run. */
  daemons(): readonly string[]
}

type Call = (instances: Instances, plan: DaemonLifePlan) => Promise<unknown>

const key = 'web'
const unplug = (instances: Instances, graceMs: number) =>
  instances.unplug({ key, deviceKey: 'share', graceMs }, ADMIN)
const replace = (instances: Instances, backend: Backend) =>
  instances.replaceBackend({ key, backendKey: 'net', backend }, ADMIN)

/** A call, and the daemons that run after it. */
const leaves =
  (wanted: readonly string[], call: Call): Call =>
  async (instances, plan) => {
    await call(instances, plan)
    const daemons = plan.daemons().join()
    if (daemons !== wanted.join()) throw new Error(`daemons ${daemons}, want ${wanted}`)
  }

/** The life of devices whose daemons start and end while the machine lives. Each call can be repeated. */
export const DAEMON_LIFE: Readonly<Record<string, Call>> = {
  ensure: leaves([], (instances, { request }) => instances.ensure(request, ADMIN)),
  plug: leaves(['virtiofsd'], (instances, { shared }) => {
    const device = Device.fromPartial({ backend: 'folder', port: 'port', share: { tag: 'shared' } })
    const backend = Backend.fromPartial({ virtiofsd: { path: shared } })
    return instances.plug({ key, deviceKey: 'share', device, backend }, ADMIN)
  }),
  toPasst: leaves(['passt', 'virtiofsd'], (instances) =>
    replace(instances, Backend.fromPartial({ passt: {} })),
  ),
  toTap: leaves(['virtiofsd'], (instances, { tap }) => replace(instances, tap)),
  /** The guest, which is paused, keeps the device until it is reset. */
  unplug: (instances) => unplug(instances, 50),
  reset: (instances) => instances.changeState({ key, change: Change.RESET, graceMs: 0 }, ADMIN),
  unplugAgain: leaves([], (instances) => unplug(instances, 0)),
  toPasstAgain: leaves(['passt'], (instances) => replace(instances, Backend.fromPartial({ passt: {} }))),
  remove: leaves([], async (instances, plan) => LIFE.remove?.(instances, plan)),
}
