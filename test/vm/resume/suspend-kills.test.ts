import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { FREEZES } from '../../../scripts/test/freezes-run.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { podOf } from '../../support/containers/pod.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { savableGuest } from '../../support/vm/daemon-guest.ts'
import { createPod, ROOT } from '../../support/vm/guest-pod.ts'
import { limit } from '../../support/vm/saved/saving.ts'
import { CountingMachines } from '../../support/wing/counting-machine.ts'
import { leftovers } from '../../support/wing/leftovers.ts'
import { ADMIN } from '../../support/wing/requests.ts'

/** The steps that only a guest with an agent has, and what the machine is after a death at each. test/host/wing/migration/kills.test.ts has the others. */
const DEATHS = [
  { operation: 'export', step: 'detach', daemon: 'running', qemu: 'stopped', holder: 'stopped' },
  { operation: 'export', step: 'unplug', daemon: 'running', qemu: 'stopped', holder: 'stopped' },
  { operation: 'import', step: 'plug', daemon: 'suspended', qemu: 'suspended', holder: 'suspended' },
  { operation: 'import', step: 'repair', daemon: 'running', qemu: 'stopped', holder: 'stopped' },
] as const
const VICTIMS = ['daemon', 'qemu', 'holder'] as const
/** `npm run freezes` kills all at all steps, and this group QEMU and the holder at one, for a boot follows. */
const ALL = process.env[FREEZES.count] !== undefined

describe.skipIf(cannotBoot() !== undefined)('a suspended guest with an agent', { timeout: 400_000 }, () => {
  it('is running, stopped or suspended after a kill -9 at each step that asks it', async () => {
    const host = new CountingMachines()
    const disk = join(host.disks, 'busybox')
    copyFileSync(await ensureContainerRoot(progress), disk)
    const specification = await savableGuest(disk)
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, specification })
    await (await host.open()).ensure(request, ADMIN)

    async function withAgent(work: (connection: TtrpcClient) => Promise<unknown>): Promise<void> {
      const instances = await host.open()
      const connect = async () =>
        Duplex.from((input: AsyncIterable<Uint8Array>) => instances.connectAgent('web', input, ADMIN))
      const connection = await connectAgent({ connect }, limit())
      await work(connection).finally(() => connection.close())
    }
    const boot = async () => {
      await host.change(Change.RUN)
      await withAgent(async (connection) => {
        const pod = await createPod(agentOf(connection), '05')
        await pod.run('sleep', ['sleep', '100000'])
      })
    }
    let execs = 0
    /** The container is still there, and the agent can be asked for more. */
    const goesOn = () =>
      withAgent(async (connection) => {
        execs += 1
        const added = await podOf(agentOf(connection), ROOT).add('sleep', `e${execs}`, ['true'])
        expect(await added.wait()).toBe(0)
      })

    for (const killed of VICTIMS)
      for (const { operation, step, ...expected } of DEATHS) {
        if (!ALL && killed !== 'daemon' && step !== 'unplug') continue
        const before = await host.found()
        if (before === 'suspended') await host.resume()
        else if (before !== 'running') await boot()
        if (operation === 'import') await host.suspend()
        await host.killAt({ killed, operation, step }, () =>
          operation === 'export' ? host.suspend({ quiesce: true }) : host.resume(),
        )
        const message = `${killed} at ${step}`
        await expect.poll(() => host.found(), { timeout: 20_000, message }).toBe(expected[killed])
        if (expected[killed] === 'running') await goesOn()
      }
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })
})
