import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { printed, writeCase } from '../../foreign/case.ts'
import { type ForeignClients, foreignClients, reflectedBy } from '../../foreign/clients.ts'
import type { Forward } from '../../support/rpc/forward.ts'
import { forwardToGuest } from '../../support/rpc/forward.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'

const ID = 'foreign-1'

describe.skipIf(cannotBoot() !== undefined)('clients on other people’s libraries drive a guest', () => {
  let clients: ForeignClients
  let folder: string
  beforeAll(async () => {
    clients = await foreignClients()
    folder = temporaryFolder()
  })

  /** Each test needs its own guest, because it destroys the sandbox, which powers the guest off. */
  async function inGuest(use: (guest: TestGuest, forward: Forward) => Promise<void>): Promise<void> {
    const guest = await bootTestGuest({ append: [CRUN] })
    const forward = await forwardToGuest(guest)
    try {
      await use(guest, forward)
    } finally {
      forward.close()
      await guest.stop()
    }
  }

  function caseFor(guest: TestGuest): string {
    const path = join(folder, 'case.json')
    const rootPath = `/run/kata-containers/${ID}/rootfs`
    const disk = { driver: 'blk', source: guest.rootSource, fstype: 'ext4', mount_point: rootPath }
    writeCase(path, { container: ID, output: 'from a guest\n', status: 9, rootPath, storages: [disk] })
    return path
  }

  it('go, on containerd’s ttRPC', async () => {
    await inGuest(async (guest, { path }) => {
      expect(await clients.go(path, caseFor(guest))).toBe(printed('from a guest\n'))
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    })
  })

  it('python, on grpcio, after one that found out by itself what is served', async () => {
    await inGuest(async (guest, { path }) => {
      const reflected = await reflectedBy(path, 'grpc.AgentService', 'GetGuestDetails')
      expect(reflected.services).toEqual(
        expect.arrayContaining(['grpc.AgentService', 'grpc.Health', 'grpc.health.v1.Health']),
      )
      expect(reflected.methods).toHaveLength(42)
      expect(reflected.answer).toMatchObject({ agentDetails: { initDaemon: true } })
      expect(await clients.python(path, caseFor(guest))).toBe(printed('from a guest\n'))
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    })
  })
})
