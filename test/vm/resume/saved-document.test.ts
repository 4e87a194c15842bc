import { execFileSync } from 'node:child_process'
import { copyFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGTERM } from '../../../src/base/signals.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { ChangeStateRequest_Change as Change } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readMachine } from '../../../src/host/machine/document/document.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'
import { startDaemonProcess } from '../../support/wing/daemon-process.ts'

const COUNT = "trap 'exit 7' TERM; i=0; while :; do i=$((i + 1)); echo $i; usleep 20000; done"
const BOOT_MS = 90_000

/** The agent finds the containers' disk by its address. */
const DOCUMENT = `
kind: VM
metadata: { name: web }
spec:
  features:
    memory: 512
    cpu: 1
    firmware: { kernel: kernel, initrd: initrd, commandLine: console=ttyS0 quiet panic=-1 ${CRUN} }
    storage: [{ source: containers, address: "00:10.0" }]
    vsock: true
`

describe.skipIf(cannotBoot() !== undefined)('a guest of a document', { timeout: 240_000 }, () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  const socket = join(state, 'admin.sock')
  let daemon: Awaited<ReturnType<typeof startDaemonProcess>>
  let client: ReturnType<typeof daemonClient>

  beforeAll(async () => {
    const disk = join(folder, 'containers.img')
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    const { initrd, kernel } = await ensureImage({ form: 'initrd', progress })
    const catalogue = join(folder, 'catalogue.toml')
    const own = { kernel: join(folder, 'kernel'), initrd: join(folder, 'initrd') }
    await copyFile(kernel, own.kernel)
    await copyFile(initrd ?? expect.fail('no initrd'), own.initrd)
    const entries = [
      ['images.kernel', own.kernel],
      ['images.initrd', own.initrd],
      ['volumes.containers', disk],
    ].map(([table, path]) => `[${table}]\npath = "${path}"\n`)
    await writeFile(catalogue, `roots = ["${folder}"]\n${entries.join('')}`, { mode: 0o600 })
    const configuration = join(folder, 'daemon.toml')
    await writeFile(configuration, `catalogue = "${catalogue}"\n`, { mode: 0o600 })
    daemon = await startDaemonProcess(state, { words: ['--config', configuration] })
    client = daemonClient(socket)
  }, BOOT_MS)
  afterAll(async () => {
    await client?.instances.remove({ key: 'web' }).catch(() => {})
    client?.close()
    await endChild(daemon)
  })

  async function connected() {
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, 'web', signal) }
    return await connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }
  async function vsock() {
    const { configurations } = await client.instances.getInstance({ key: 'web' })
    const { plugged: _, ...device } =
      readMachine(JSON.parse(configurations?.current ?? '')).devices.vsock0 ?? {}
    return device
  }

  it('is saved without its vsock device, which comes back to its place', async () => {
    await client.instances.ensureInstance({ properties: { key: 'web' }, document: DOCUMENT })
    await client.instances.changeState({ key: 'web', change: Change.RUN })
    const connection = await connected()
    const pod = await createPod(agentOf(connection), '10')
    const counter = await pod.run('counter', ['sh', '-c', COUNT])
    const before = await counter.readUntil('\n5\n')
    const place = await vsock()
    expect(place).toMatchObject({ kind: 'vsock' })
    connection.close()
    expect(await microvm(['suspend', 'web', 'pod', '--socket', socket])).toMatchObject({ status: 0 })
    expect(await microvm(['resume', 'pod', 'web', '--socket', socket])).toMatchObject({ status: 0 })
    const there = await connected()
    expect(await vsock()).toEqual(place)
    const goesOn = new RemoteProcess(agentOf(there), 'counter')
    const after = await goesOn.readUntil('\n')
    await goesOn.signal(SIGTERM)
    const numbers = (before + after + (await goesOn.readAll())).trimEnd().split('\n')
    expect(numbers).toEqual(numbers.map((_, index) => `${index + 1}`))
    expect(await goesOn.wait()).toBe(7)
    there.close()
  })
})
