import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { METADATA_ITEM } from '../../../src/base/vm-metadata/point-to-point.ts'
import { Instance } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { VMMetadata } from '../../../src/gen/vm.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { instanceJson } from '../../../src/microvm/machines/command.ts'
import { guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { type BridgedHosts, startBridgedHosts } from '../../support/wing/moves/bridged-hosts.ts'

const GUEST = '10.0.0.7'
/** Of namespace c: the only one that the agent serves. */
const PEER = '10.0.0.3'
const BOOT_MS = 120_000

/** Connects to the agent once it is there, and then says the number of each HTTP/2 ping that was answered on this one connection. */
const PINGER = `
  const { connect } = require('node:http2')
  const begin = () => {
    const session = connect('http://${GUEST}:1024')
    let count = 0
    const ping = () => session.ping((error) => {
      if (error) return
      console.log(++count)
      setTimeout(ping, 50)
    })
    session.on('connect', ping)
    session.on('error', () => {})
    session.on('close', () => count === 0 ? setTimeout(begin, 500) : console.log('closed'))
  }
  begin()
`

describe.skipIf(cannotBoot() !== undefined)(
  'a TCP connection to a guest that moves',
  { timeout: 240_000 },
  () => {
    const folder = temporaryFolder()
    let hosts: BridgedHosts

    beforeAll(async () => {
      hosts = await startBridgedHosts()
      const file = join(folder, 'web.json')
      const machine = { properties: { key: 'web' }, specification: specToProto(await specification(folder)) }
      writeFileSync(file, JSON.stringify(instanceJson(Instance.fromPartial(machine))))
      await hosts.run('a', 'ensure', file)
      await hosts.run('a', 'start', 'web')
    }, BOOT_MS)

    afterAll(async () => {
      for (const host of ['a', 'b'] as const) await hosts.run(host, 'rm', 'web').catch(() => {})
      await hosts.end()
    })

    it('goes on', async () => {
      const [program = '', ...words] = [...hosts.namespaces.c.enter, process.execPath, '-e', PINGER]
      const pinger = spawn(program, words, { stdio: ['ignore', 'pipe', 'inherit'] })
      const lines = createInterface(pinger.stdout)[Symbol.asyncIterator]()
      let count = 0
      const more = async (wanted: number) => {
        for (const end = count + wanted; count < end; ) {
          const { value } = await lines.next()
          expect(value).toBe(`${++count}`)
        }
      }
      try {
        await more(10)
        const moved = hosts.run('a', 'migrate', 'web', '--to', 'b', '--without-agent')
        let isMoved = false
        moved
          .finally(() => {
            isMoved = true
          })
          .catch(() => {})
        while (!isMoved) await more(1)
        expect(await moved).toContain('web: runs on b')
        await more(20)
      } finally {
        pinger.kill('SIGKILL')
        await once(pinger, 'close')
      }
    })
  },
)

async function specification(folder: string) {
  const path = join(folder, 'metadata.pb')
  const networkConfig = { v4: { ip: GUEST, peerIp: PEER } }
  writeFileSync(path, VMMetadata.encode(VMMetadata.fromPartial({ name: 'web', networkConfig })).finish())
  const content = specKey('metadata-content')
  return guestSpec({
    ...{ machine: 'pc-q35-7.2', memoryMib: 512, cpus: 1, append: [] },
    ...{ boot: await ensureImage({ progress }), containerRoot: undefined },
    link: {
      device: (slot, backend) => ({ kind: 'nic', slot, mac: '52:54:00:00:01:01', backend }),
      backend: { kind: 'tap', interfaceName: 'tap-web', bridge: 'br0' },
      commandLine: ['agent.server_addr=tcp://0.0.0.0:1024', `agent.server_peer=${PEER}`],
    },
    extra: {
      devices: { [specKey('metadata')]: { kind: 'fw-cfg', name: METADATA_ITEM, backend: content } },
      backends: { [content]: { kind: 'content', path } },
    },
  })
}
