import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  type Instance,
  PlugRequest,
  ReplaceBackendRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { ADMIN } from '../requests.ts'
import { LIFE, type LifePlan } from './life.ts'

/** Names that the catalogue has. */
export interface DocumentLifePlan extends LifePlan {
  readonly catalogue: string
}

type Call = (instances: Instances, plan: DocumentLifePlan) => Promise<unknown>

const key = 'web'
const plug = (instances: Instances, deviceKey: string, features: string) =>
  instances.plug(PlugRequest.fromPartial({ key, deviceKey, features }), ADMIN)
const unplug = (instances: Instances, deviceKey: string) =>
  instances.unplug({ key, deviceKey, graceMs: 50 }, ADMIN)
const change = (instances: Instances, to: Change) =>
  instances.changeState({ key, change: to, graceMs: 0 }, ADMIN)

/** A call, and the devices that the three machines have after it, without those of the document's defaults. */
const leaves =
  (wanted: string, call: Call): Call =>
  async (instances, plan) => {
    await call(instances, plan)
    const has = devicesOf(await instances.get(key, ADMIN))
    if (has !== wanted) throw new Error(`machines have ${has}, want ${wanted}`)
  }

function devicesOf({ configurations, devices }: Instance): string {
  const { current = '', desired = '', saved = '' } = configurations ?? {}
  const keysOf = (machine: string) => {
    const all: Readonly<Record<string, unknown>> = machine === '' ? {} : JSON.parse(machine).devices
    return ['disk0', 'lan', 'more'].filter((each) => each in all).join('+')
  }
  const left = Object.entries(devices).flatMap(([each, { leavingMs }]) =>
    leavingMs === undefined ? [] : each,
  )
  return (
    [saved, desired, current].map(keysOf).join(' ') + (left.length === 0 ? '' : `, leaving ${left.join('+')}`)
  )
}

const ALL = 'disk0+lan+more'
const MORE = 'storage: [{source: more}]'

/**
 * The life of an instance of a document whose devices come and go. Each call can be repeated. The guest is paused, and keeps a
 * device until a reset or a cold boot.
 */
export const DOCUMENT_LIFE: Readonly<Record<string, Call>> = {
  ensure: leaves('disk0 disk0 disk0', (instances) => instances.ensure(REQUEST, ADMIN)),
  plugDisk: leaves('disk0+more disk0+more disk0+more', (instances) => plug(instances, 'more', MORE)),
  replaceDisk: async (instances) => {
    const { configurations } = await instances.replaceBackend(
      ReplaceBackendRequest.fromPartial({ key, backendKey: 'more-backend', source: 'other' }),
      ADMIN,
    )
    const { current = '', desired = '', saved = '' } = configurations ?? {}
    const names = [saved, desired, current].map((text) => JSON.parse(text).backends['more-backend'].name)
    if (names.join() !== 'other,other,other') throw new Error(`machines have ${names}, want other`)
  },
  plugCard: leaves(`${ALL} ${ALL} ${ALL}`, (instances) =>
    plug(instances, 'lan', 'network: [{source: lan, filter: no-mac-spoofing}]'),
  ),
  unplugDisk: leaves(`disk0+lan disk0+lan ${ALL}, leaving more`, (instances) => unplug(instances, 'more')),
  reset: leaves('disk0+lan disk0+lan disk0+lan', (instances) => change(instances, Change.RESET)),
  unplugCard: leaves('disk0 disk0 disk0+lan, leaving lan', (instances) => unplug(instances, 'lan')),
  unplugOwn: leaves('  disk0+lan, leaving disk0+lan', (instances) => unplug(instances, 'disk0')),
  plugAgain: leaves(`more more ${ALL}, leaving disk0+lan`, (instances) => plug(instances, 'more', MORE)),
  kill: leaves('more  ', (instances) => change(instances, Change.KILL)),
  /** The document is expanded anew. */
  start: leaves('more more more', (instances) => change(instances, Change.RUN)),
  remove: async (instances, plan) => LIFE.remove?.(instances, plan),
}

const REQUEST = EnsureInstanceRequest.fromPartial({
  properties: { key },
  document:
    '{kind: VM, spec: {stability: latest, features: {memory: {size: 64, current: 48, maximum: 64}, storage: [{source: root}]}}}',
})
