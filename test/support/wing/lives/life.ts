import { messageOf } from '../../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  type EnsureInstanceRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { ADMIN, file } from '../requests.ts'

/** Files that the life needs, and what it begins with. */
export interface LifePlan {
  readonly request: EnsureInstanceRequest
  readonly other: string
  readonly data: string
}

type Call = (instances: Instances, plan: LifePlan) => Promise<unknown>

const key = 'web'
const change = (instances: Instances, to: Change) =>
  instances.changeState({ key, change: to, graceMs: 100 }, ADMIN)

/** The life of an instance, call by call. Each can be repeated when the daemon has died in it. */
export const LIFE: Readonly<Record<string, Call>> = {
  ensure: (instances, { request }) => instances.ensure(request, ADMIN),
  run: (instances) => change(instances, Change.RUN),
  plug: (instances, { data }) => {
    const device = Device.fromPartial({
      backend: 'data-file',
      slot: 0,
      port: 'port',
      disk: { serial: 'data' },
    })
    return instances.plug({ key, deviceKey: 'data', device, backend: file(data) }, ADMIN)
  },
  allocatePort: (instances) =>
    instances.allocatePort({ key, container: 'c', exec: '', stream: 'stdout' }, ADMIN),
  replace: (instances, { other }) =>
    instances.replaceBackend({ key, backendKey: 'root-file', backend: file(other) }, ADMIN),
  pause: (instances) => change(instances, Change.PAUSE),
  reset: (instances) => change(instances, Change.RESET),
  unplug: (instances) => instances.unplug({ key, deviceKey: 'data', graceMs: 200 }, ADMIN),
  stop: (instances) => change(instances, Change.STOP),
  start: (instances) => change(instances, Change.RUN),
  remove: async (instances) => {
    try {
      await instances.remove(key, ADMIN)
    } catch (error) {
      // The call has done its work before the death.
      if (!messageOf(error).includes('not found')) throw error
    }
  },
}
