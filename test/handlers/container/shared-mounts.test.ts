import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { FakeOs } from '../../support/fakes/fake-os.ts'
import { containerRequest, type Machine, machineWithSandbox } from '../../support/handlers/machine.ts'

const SHARED = [{ name: 'fuse', srcCtr: 'sidecar', srcPath: '/shared', dstCtr: 'app', dstPath: '/data' }]

/** A container with a Kubernetes name, whose first process has pid 1001. */
async function withSidecar(annotation = 'io.kubernetes.cri.container-name'): Promise<Machine> {
  const made = await machineWithSandbox()
  const { OCI } = containerRequest('c1')
  const named = { ...OCI, Annotations: { [annotation]: 'sidecar' } }
  await made.handlers.createContainer(containerRequest('c1', {}, { OCI: named }), neverAborted)
  made.os.mounts.pathsOf.set(1001, ['/', '/proc'])
  return made
}

function createApp({ handlers }: Machine, signal = neverAborted): Promise<void> {
  return handlers.createContainer(containerRequest('c2', {}, { sharedMounts: SHARED }), signal)
}

async function untilCreationWaits({ clock }: FakeOs): Promise<void> {
  while (clock.sleeping === 0) await new Promise(setImmediate)
}

describe('shared mounts', () => {
  it.each(['io.kubernetes.cri.container-name', 'io.kubernetes.cri-o.ContainerName'])(
    'are copied from the container whose name is in %s',
    async (annotation) => {
      const made = await withSidecar(annotation)
      made.os.mounts.pathsOf.set(1001, ['/', '/shared'])
      await createApp(made)
      expect(made.os.mounts.clones).toEqual([
        { from: { pid: 1001, path: '/shared' }, to: { pid: 1002, path: '/data' } },
      ])
    },
  )

  it('are awaited by the creation', async () => {
    const made = await withSidecar()
    const creating = createApp(made)
    await untilCreationWaits(made.os)
    made.os.mounts.pathsOf.set(1001, ['/', '/shared'])
    made.os.clock.advance(100)
    await creating
    expect(made.os.mounts.clones).toHaveLength(1)
  })

  it('are skipped when they are missing after 10 s', async () => {
    const made = await withSidecar()
    const creating = createApp(made)
    for (let waited = 0; waited < 10_000; waited += 100) {
      await untilCreationWaits(made.os)
      made.os.clock.advance(100)
    }
    await creating
    expect(made.os.mounts.clones).toEqual([])
  })

  it('are skipped when their container has ended', async () => {
    const made = await withSidecar()
    made.os.mounts.pathsOf.set(1001, ['/', '/shared'])
    made.runtime.end(1001, { code: 0 })
    const creating = createApp(made)
    await untilCreationWaits(made.os)
    made.os.clock.advance(10_000)
    await creating
    expect(made.os.mounts.clones).toEqual([])
  })

  it('are skipped when their container ends while the creation waits for others', async () => {
    const made = await withSidecar()
    made.os.mounts.pathsOf.set(1001, ['/', '/shared'])
    const [first] = SHARED
    const later = [...SHARED, { ...first, srcPath: '/later', dstPath: '/later' }]
    const request = containerRequest('c2', {}, { sharedMounts: later })
    const creating = made.handlers.createContainer(request, neverAborted)
    await untilCreationWaits(made.os)
    made.runtime.end(1001, { code: 0 })
    made.os.clock.advance(10_000)
    await creating
    expect(made.os.mounts.clones).toEqual([])
  })

  it('are not copied when the new container ends meanwhile', async () => {
    const made = await withSidecar()
    const creating = createApp(made)
    await untilCreationWaits(made.os)
    made.runtime.end(1002, { code: 0 })
    made.os.mounts.pathsOf.set(1001, ['/', '/shared'])
    made.os.clock.advance(100)
    await expect(creating).rejects.toThrow('ended')
    expect(made.os.mounts.clones).toEqual([])
  })

  it('are no longer awaited once the call is cancelled', async () => {
    const made = await withSidecar()
    const caller = new AbortController()
    const creating = createApp(made, caller.signal)
    await untilCreationWaits(made.os)
    caller.abort(new Error('hung up'))
    await expect(creating).rejects.toThrow('hung up')
    await expect(made.handlers.startContainer({ containerId: 'c2' }, neverAborted)).rejects.toThrow('Invalid')
  })

  it('that cannot be copied make the creation fail and be undone', async () => {
    const made = await withSidecar()
    made.os.mounts.pathsOf.set(1001, ['/', '/shared'])
    made.os.mounts.failWith = (call) => (call === 'clone' ? 'ENOENT' : undefined)
    await expect(createApp(made)).rejects.toThrow('clone /data: ENOENT')
    made.os.mounts.failWith = () => undefined
    await createApp(made)
  })
})
