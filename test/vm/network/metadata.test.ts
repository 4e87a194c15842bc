import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, cannotBoot } from '../../support/vm/boot-guest.ts'
import { metadataItem } from '../../support/vm/metadata-item.ts'
import { runMicrovm } from '../../support/vm/microvm-process.ts'

describe.skipIf(cannotBoot() !== undefined)('VM metadata', () => {
  const folder = temporaryFolder()
  let server: Server
  let port: number

  beforeAll(async () => {
    server = createServer((_, answer) => answer.end('hello from the host\n')).listen(0, '::')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  })

  afterAll(() => {
    server.close()
  })

  it('of ./microvm run --metadata leads to this machine by the peers of both families', async () => {
    const file = join(folder, 'vm.yaml')
    const families = ['v4: {ip: 10.0.0.2, peer_ip: 10.0.0.1}', 'v6: {ip: fd00::2, peer_ip: fd00::1}']
    writeFileSync(file, `name: vm1\nnetwork_config:\n  ${families.join('\n  ')}\n`)
    const ask = ['10.0.0.1', '[fd00::1]'].map((peer) => `wget -q -O - http://${peer}:${port}/`)
    const result = await runMicrovm(['--metadata', file, 'sh', '-c', ask.join(' && ')])
    expect(result).toMatchObject({ status: 0, stdout: 'hello from the host\n'.repeat(2) })
  })

  it('holds up the boot for a missing card until agent.hotplug_timeout, and Check is answered meanwhile', async () => {
    const guest = await bootTestGuest({
      append: ['agent.hotplug_timeout=2', 'agent.log=debug'],
      extra: metadataItem(folder),
    })
    try {
      // This call waits for the end of the boot.
      await guest.agent.createSandbox({ sandboxId: 'pod', hostname: 'vm-pod' })
      const lines = guest.guest.vm.console.lines
      const placeOf = (wanted: RegExp) => lines.findIndex((line) => wanted.test(line))
      const notApplied = placeOf(/VM metadata not applied to the network/)
      expect(lines[notApplied]).toContain('Timeout after 2s waiting for uevent of an Ethernet interface')
      const booted = placeOf(/"msg":"booted"/)
      expect(booted).toBeGreaterThan(notApplied)
      // The runner checks every 100 ms once the agent listens.
      const checked = placeOf(/"rpc".*Check.*"OK"/)
      expect(checked).toBeGreaterThan(-1)
      expect(checked).toBeLessThan(booted)
    } finally {
      await guest.stop()
    }
  })
})
