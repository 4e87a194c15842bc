import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { SharedMount } from '../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'

const TMPFS = { type: 'tmpfs', source: 'tmpfs', options: ['mode=755'] }

describe('shared mounts of one container in another', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  /** Runs a container with a Kubernetes name and an empty folder at a path. */
  async function runNamed(
    name: string,
    destination: string,
    script: string,
    ...sharedMounts: readonly DeepPartial<SharedMount>[]
  ): Promise<RemoteProcess> {
    const options = {
      spec: { Annotations: { 'io.kubernetes.cri.container-name': name } },
      mounts: [{ ...TMPFS, destination }],
      sharedMounts: [...sharedMounts],
    }
    return pod.run(name, ['sh', '-c', script], options)
  }

  it('exist when its program begins, and stay when their owner is removed', async () => {
    const sidecar = await runNamed('sidecar', '/shared', 'echo shared > /shared/file; echo ready; sleep 1000')
    await sidecar.readUntil('ready\n')
    const shared = { name: 'm', srcCtr: 'sidecar', srcPath: '/shared', dstCtr: 'app', dstPath: '/data' }
    const app = await runNamed('app', '/data', 'cat /data/file; read line; cat /data/file', shared)
    expect(await app.readUntil('\n')).toBe('shared\n')
    await pod.remove('sidecar')
    await app.write('\n')
    expect((await app.readAll()).toString()).toBe('shared\n')
    expect(await app.wait()).toBe(0)
    await pod.remove('app')
    expect(leftoversOf(pod.started, 'sidecar', 'app')).toEqual(NOTHING_LEFT)
  })

  it('at a path that the new one lacks fail its creation, and leave nothing', async () => {
    const owner = await runNamed('owner', '/shared', 'echo ready; sleep 1000')
    await owner.readUntil('ready\n')
    const nowhere = { name: 'm', srcCtr: 'owner', srcPath: '/shared', dstCtr: '', dstPath: '/none' }
    await expect(runNamed('lost', '/data', 'true', nowhere)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/^clone mount \/shared of process \d+ to \/none: ENOENT$/),
    })
    await pod.remove('owner')
    expect(leftoversOf(pod.started, 'owner', 'lost')).toEqual(NOTHING_LEFT)
  })
})
