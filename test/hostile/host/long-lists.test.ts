import { connect } from 'node:net'
import { BinaryWriter } from '@bufbuild/protobuf/wire'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'
import { underAttack } from '../../support/hostile/attack.ts'
import { hostTarget } from '../../support/hostile/host-target.ts'

/** Without limits the agent took more than twice as much, or ended. */
const MOST_MIB = 200

const FILES = 50_000
const MOUNTS = 1000
const DEEP = `/dev${`/${'x'.repeat(249)}`.repeat(10)}`
const EMPTY_MESSAGES = 600_000

describe('what a container or a host makes long', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  async function attacked(name: string, id: string, attack: () => Promise<void>): Promise<void> {
    const target = await hostTarget(pod.started)
    const pid = pod.started.agentPid()
    const left = () => Object.values(leftoversOf(pod.started, id)).flat().length
    const { figures } = await underAttack(name, target, attack, left)
    target.close()
    expect(pod.started.agentPid()).toBe(pid)
    expect(figures.peakMib).toBeLessThan(MOST_MIB)
    expect(leftoversOf(pod.started, id)).toEqual(NOTHING_LEFT)
  }

  it(`a storage with ${FILES} files is removed`, async () => {
    const mountPoint = '/run/kata-containers/sandbox/many-files'
    await attacked('files without end', 'files', async () => {
      const storages = [
        { driver: 'local', source: 'local', fstype: 'local', options: ['mode=0777'], mountPoint },
      ]
      const script = `cd /tmp && seq 1 ${FILES} | xargs touch`
      const init = await pod.run('files', ['sh', '-c', script], {
        storages,
        mounts: [bind(mountPoint, '/tmp')],
      })
      expect(await init.wait()).toBe(0)
      await pod.remove('files')
    })
  })

  it(`a container with ${MOUNTS} mounts is listed, and removed`, async () => {
    await attacked('mounts without end', 'mounts', async () => {
      const script = `mkdir -p ${DEEP}; i=0; while [ $((i += 1)) -le ${MOUNTS} ]; do mount -t tmpfs none ${DEEP}; done
        echo done; sleep 1000`
      const init = await pod.run('mounts', ['sh', '-c', script], {
        capabilities: ['CAP_SYS_ADMIN', 'CAP_KILL'],
      })
      await init.readUntil('done\n')
      const sharedMounts = [{ name: 'm', srcCtr: 'mounts', srcPath: DEEP, dstPath: '/dev/shared' }]
      await pod.run('reader', ['sleep', '1000'], { sharedMounts })
      await pod.remove('reader')
      await pod.remove('mounts')
    })
  })

  it(`a request of ${EMPTY_MESSAGES} empty messages is refused by its field`, async () => {
    await attacked('empty messages', 'messages', async () => {
      const writer = new BinaryWriter()
      for (let count = 0; count < EMPTY_MESSAGES; count++) writer.tag(5, 2).bytes(new Uint8Array(0))
      const client = ttrpcClient(connect(pod.started.path))
      await expect(
        client.call('grpc.AgentService', 'CreateContainer', writer.finish()),
      ).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
        message: expect.stringContaining('storages'),
      })
      client.close()
    })
  })
})
