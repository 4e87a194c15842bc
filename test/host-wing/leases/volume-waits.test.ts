import { expect, it } from 'vitest'
import { abortable, neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { volumeStep } from '../../../src/host/instance/leases/lease-steps.ts'
import { MachineLease } from '../../../src/host/instance/leases/machine-lease.ts'
import { Volumes } from '../../../src/host/instance/leases/volumes.ts'
import { INSTANCE_LIMITS } from '../../../src/host/instance/limits.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { FakeLeaseController } from '../../support/wing/fakes/fake-lease-controller.ts'

const never = new Promise<never>(() => {})
const noHolder = async (): Promise<never> => {
  throw new Error('no holder')
}
const us = { vmName: 'web', namespace: 'default', podName: 'a/web', runId: 1n }

/** The step `volume` of a machine on host `a`, with a controller and other hosts that never answer. */
function step() {
  const ending = new AbortController()
  const controller = new FakeLeaseController()
  controller.fenceVolume = async (_, __, signal) => await abortable(never, signal)
  const clock = { boottimeNs: () => 0n, sleep: () => never, startTimer: () => () => {} }
  const filters = { check: async () => {}, apply: async () => {}, run: async () => {} }
  const log = silentLogger()
  const lease = new MachineLease(
    {
      ...{ us: () => us, isOnItsWay: () => false, settings: {}, terminate: () => {} },
      ...{ controller, clock, filters, log },
    },
    { isRegistered: true },
  )
  const volumes = new Volumes({
    ...{ id: 'a', address: '192.0.2.1', listen: '192.0.2.1', identity: { ca: '', cert: '', key: '' } },
    ...{ folders: {}, getVm: () => never, stateFolder: temporaryFolder(), program: '/nothing' },
    ...{ registry: memoryRegistry(), clock, limits: INSTANCE_LIMITS, log },
    holders: { start: noHolder, find: noHolder, kill: noHolder },
  })
  const context = { folder: '/', filters, holder: undefined, lease, volumes, ending: () => ending.signal }
  const { make } = volumeStep(() => ({ make: async () => {}, undo: async () => {} }))
  const begin = (host?: string) =>
    make(
      context,
      {
        words: ['root', '', '/s'],
        server: { standIn: () => ({}), ...(host && { bridge: { host, to: () => ({}) } }) },
      },
      { uid: 0 },
    )
  return { begin, end: () => ending.abort(new AgentError('ABORTED', 'killed')), volumes }
}

it.each([undefined, 'b'])(
  'a machine that is killed waits no longer for its disk, on host %s',
  async (host) => {
    const { begin, end } = step()
    const made = begin(host)
    end()
    await expect(made).rejects.toThrow('killed')
  },
)

it('a writer that gives up does not wait for the one before it', async () => {
  const { begin, end, volumes } = step()
  const first = volumes.fence(us, 'root', { peer: 'b' }, neverAborted)
  void first.catch(() => {})
  const made = begin()
  end()
  await expect(made).rejects.toThrow('killed')
})
