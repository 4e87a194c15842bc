import { describe, expect, it } from 'vitest'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { MAX_STATE_FOLDER_BYTES } from '../../../src/host/instance/limits.ts'
import { guestSocket, planFor } from '../../../src/host/instance/machine/plan.ts'
import { MAX_SOCKET_PATH_BYTES } from '../../../src/host/spec/limits.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { specification } from '../../support/wing/requests.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'

describe('the plan of a start', () => {
  it('has paths of sockets that fit, in the longest state folder', async () => {
    const plan = planFor({
      ...{ acceleration: 'tcg', tscKhz: undefined, isKept: true },
      program: async (name) => name,
    })
    const state = '/'.padEnd(MAX_STATE_FOLDER_BYTES, 'x')
    const folder = `${state}/instances/${instanceFolderName(specKey(UUID))}`
    const record = InstanceRecord.fromPartial({
      cid: 3,
      specification: specification({
        devices: {
          link: { backend: 'link-daemon', slot: 3, vsock: {} },
          card: { backend: 'card-daemon', slot: 4, nic: { mac: '02:00:00:00:00:01' } },
          share: { backend: 'share-daemon', slot: 5, share: { tag: 'tree' } },
        },
        backends: {
          'link-daemon': { vsockDaemon: {} },
          'card-daemon': { passt: {} },
          'share-daemon': { virtiofsd: { path: '/srv' } },
        },
      }),
    })
    const steps = await plan(record, folder)
    const sockets = steps.flatMap(({ words }) => words.filter((word) => word.endsWith('.sock')))
    const lengths = [...sockets, `${guestSocket(folder)}_${2 ** 32 - 1}`].map((path) => path.length)
    expect(lengths).toHaveLength(6)
    expect(Math.max(...lengths)).toBe(MAX_SOCKET_PATH_BYTES)
  })
})
