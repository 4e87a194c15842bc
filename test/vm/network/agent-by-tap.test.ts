import type { ChildProcess } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Instance } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { DEFAULT_KERNEL } from '../../../src/image/packages.ts'
import { instanceJson } from '../../../src/microvm/machines/command.ts'
import { guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { metadataItem } from '../../support/vm/metadata-item.ts'
import { startDaemonProcess } from '../../support/wing/daemon-process.ts'
import { leftovers } from '../../support/wing/leftovers.ts'

/** Connects to the agent at its first argument from its second one, and says whether it is closed before it says a word. */
const CALLER = `
  const [, host, localAddress] = process.argv
  const socket = require('node:net').connect({ host, port: 1024, localAddress })
  const say = (word) => () => { console.log(word); process.exit() }
  socket.on('error', ({ code }) => say(code)()).on('close', say('closed')).resume()
  socket.on('connect', () => setTimeout(say('kept'), 1000))
`

const LINK = { guest: '10.0.0.2', host: '10.0.0.1', other: '10.0.0.9' }
const TAP = 'tap0'

describe.skipIf(cannotBoot() !== undefined)('an instance without vsock', () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  const socket = join(state, 'admin.sock')
  let namespace: NetworkNamespace
  let daemon: ChildProcess

  beforeAll(async () => {
    namespace = await makeNetworkNamespace()
    daemon = await startDaemonProcess(state, { enter: namespace.enter })
    const described = { properties: { key: 'web' }, specification: specToProto(await specification(folder)) }
    const file = join(folder, 'web.json')
    writeFileSync(file, JSON.stringify(instanceJson(Instance.fromPartial(described))))
    await run('ensure', file)
    await run('start', 'web')
  })

  afterAll(async () => {
    await run('rm', 'web')
    await endChild(daemon)
    expect(leftovers(state)).toEqual([])
    await namespace.close()
  })

  async function run(...words: readonly string[]): Promise<void> {
    const { status, stderr } = await microvm([...words, '--socket', socket])
    expect([status, stderr]).toEqual([0, ''])
  }

  it('is reached by TCP on its own tap, from the one address of this host that its agent serves', async () => {
    const env = { MICROVM_SOCKET: socket }
    const told = await ctl(['-a', 'microvm://web', '--wait', '120', 'Check'], { env })
    expect(told).toMatchObject({ status: 0, stdout: expect.stringContaining('SERVING') })
    namespace.ip(`address add ${LINK.other} peer ${LINK.guest} dev ${TAP}`)
    const call = (from: string) => namespace.run(process.execPath, '-e', CALLER, LINK.guest, from).trim()
    expect(call(LINK.other)).toBe('closed')
    expect(call(LINK.host)).toBe('kept')
  })
})

async function specification(folder: string) {
  return guestSpec({
    machine: 'pc-q35-7.2',
    memoryMib: 1024,
    cpus: 1,
    boot: await ensureImage({ kernel: DEFAULT_KERNEL, form: 'initrd', progress }),
    containerRoot: undefined,
    link: {
      device: (slot, backend) => ({ kind: 'nic', slot, mac: '52:54:00:00:01:01', backend }),
      backend: { kind: 'tap', interfaceName: TAP },
      commandLine: ['agent.server_addr=tcp://0.0.0.0:1024', `agent.server_peer=${LINK.host}`],
    },
    append: [],
    extra: metadataItem(folder),
  })
}
