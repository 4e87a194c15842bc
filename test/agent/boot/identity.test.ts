import { describe, expect, it } from 'vitest'
import { takeIdentity } from '../../../src/agent/boot/identity.ts'
import { VMMetadata } from '../../../src/gen/vm.ts'
import type { AgentConfig } from '../../../src/settings/settings.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

const NAME = 'opt/vm.metropolis.monogon.dev/v1/metadata.pb'
const ITEM = `/sys/firmware/qemu_fw_cfg/by_name/${NAME}`
const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }

async function guestWith(
  metadata: Parameters<typeof VMMetadata.create>[0],
  config: Partial<AgentConfig> = {},
) {
  const guest = await bareGuest(config)
  const { files, network } = guest.os
  const bytes = VMMetadata.encode(VMMetadata.create(metadata)).finish()
  await files.makeDirectories('/sys/firmware/qemu_fw_cfg/by_key')
  await files.put(`${ITEM}/size`, String(bytes.length))
  await files.put(`${ITEM}/raw`, '')
  await files.write(`${ITEM}/raw`, bytes)
  network.addLink({ name: 'eth0' })
  return guest
}

describe('takeIdentity', () => {
  it('takes name and addresses from the firmware', async () => {
    const { os, context } = await guestWith({ name: 'vm1', networkConfig: { v4: V4 } })
    expect(await takeIdentity(context)).toBe('done')
    expect(os.system.hostname).toBe('vm1')
    expect(os.network.addresses()).toMatchObject([{ address: '10.0.0.2', peer: '10.0.0.1' }])
  })

  it('records what it sets from metadata', async () => {
    const { context } = await guestWith({ name: 'vm1', networkConfig: { v4: V4 } })
    await takeIdentity(context)
    const settings = context.networkRecord.settings()
    expect(settings.map(({ source, kind, value }) => `${source} ${kind} ${value}`)).toEqual([
      'metadata hostname vm1',
      `metadata interface up, from ${NAME}`,
      'metadata address eth0 peer 10.0.0.1',
      'metadata route via 10.0.0.1 dev eth0',
    ])
  })

  it('does not record a name that the kernel refused', async () => {
    const { os, context } = await guestWith({ name: 'vm1' })
    os.system.setHostname = () => {
      throw new Error('sethostname vm1: EPERM')
    }
    expect(await takeIdentity(context)).toBe('already')
    expect(context.networkRecord.settings()).toEqual([])
  })

  it.each(['-vm1', 'vm1.example', 'a'.repeat(64), 'vm 1', '\ufffdm1'])(
    'does not take %j for a host name',
    async (name) => {
      const { os, context, lines } = await guestWith({ name })
      await takeIdentity(context)
      expect(os.system.hostname).toBe('guest')
      expect(lines).toEqual([
        { level: 'warn', message: 'name in the VM metadata is not a host name', fields: { name } },
      ])
      expect(context.networkRecord.settings()).toEqual([])
    },
  )

  it('changes nothing when the same metadata is applied again', async () => {
    const { os, context } = await guestWith({ name: 'vm1', networkConfig: { v4: V4 } })
    await takeIdentity(context)
    await os.files.write('/proc/sys/kernel/hostname', 'vm1\n')
    expect(await takeIdentity(context)).toBe('already')
  })

  it('takes the name from /etc/hostname when the metadata has none', async () => {
    const { os, context } = await guestWith({})
    await takeIdentity(context)
    expect(os.system.hostname).toBe('guest')
    expect(os.network.changes).toEqual([])
  })

  it('reads no metadata with agent.metadata=off', async () => {
    const { os, context } = await guestWith({ name: 'vm1', networkConfig: { v4: V4 } }, { metadata: 'off' })
    await takeIdentity(context)
    expect(os.system.hostname).toBe('guest')
    expect(os.network.changes).toEqual([])
  })

  it('continues with a warning when the network card does not appear within agent.hotplug_timeout', async () => {
    const { os, context, lines } = await guestWith(
      { name: 'vm1', networkConfig: { v4: V4 } },
      { metadataInterface: 'eth7', hotplugTimeoutMs: 4000 },
    )
    const taking = takeIdentity(context)
    await expect.poll(() => os.clock.sleeping).toBe(1)
    os.clock.advance(4000)
    expect(await taking).toBe('done')
    expect(os.system.hostname).toBe('vm1')
    expect(lines.at(-1)).toMatchObject({
      level: 'warn',
      message: 'VM metadata not applied to the network',
      fields: {
        error: expect.stringContaining('Timeout after 4s waiting for uevent of network interface eth7'),
      },
    })
  })

  it('continues with a warning when the firmware cannot be read', async () => {
    const { os, context, lines } = await bareGuest()
    os.files.stat = () => Promise.reject(new Error('stat: EIO'))
    await takeIdentity(context)
    expect(lines[0]).toEqual({
      level: 'warn',
      message: 'VM metadata not read',
      fields: { error: 'stat: EIO' },
    })
  })
})
