import { execFileSync } from 'node:child_process'
import { copyFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { jsonLogger } from '../../../src/base/log.ts'
import { SIGTERM } from '../../../src/base/signals.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import {
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  EnsureInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { readMachine } from '../../../src/host/machine/document/document.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { podOf, RemoteProcess } from '../../support/containers/pod.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { createPod, ROOT } from '../../support/vm/guest-pod.ts'
import { leftovers } from '../../support/wing/leftovers.ts'
import { MovingHosts } from '../../support/wing/moves/moving-hosts.ts'
import { ADMIN } from '../../support/wing/requests.ts'

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
  const warnings: string[] = []
  const sink = (line: string) => void warnings.push(line)
  const hosts = new MovingHosts(['a', 'b'], jsonLogger({ level: () => 'warn', version: '', pid: 0, sink }))
  let place: Awaited<ReturnType<typeof vsockAt>>

  beforeAll(async () => {
    const folder = temporaryFolder()
    const disk = join(folder, 'containers.img')
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    const { initrd, kernel } = await ensureImage({ form: 'initrd', progress })
    hosts.catalogue = join(folder, 'catalogue.toml')
    const own = { kernel: join(folder, 'kernel'), initrd: join(folder, 'initrd') }
    await copyFile(kernel, own.kernel)
    await copyFile(initrd ?? expect.fail('no initrd'), own.initrd)
    const entries = [
      ['images.kernel', own.kernel],
      ['images.initrd', own.initrd],
      ['volumes.containers', disk],
    ].map(([table, path]) => `[${table}]\npath = "${path}"\n`)
    await writeFile(hosts.catalogue, `roots = ["${folder}"]\n${entries.join('')}`, { mode: 0o600 })
    const { instances } = await hosts.open('a')
    const made = { properties: { key: 'web' }, document: DOCUMENT }
    await instances.ensure(EnsureInstanceRequest.fromPartial(made), ADMIN)
    const run = ChangeStateRequest.fromPartial({ key: 'web', change: Change.RUN })
    await instances.changeState(run, ADMIN)
    const connection = await connected('a')
    await createPod(agentOf(connection), '10')
    connection.close()
    place = await vsockAt('a')
    expect(place).toMatchObject({ kind: 'vsock' })
  }, BOOT_MS)
  afterAll(async () => {
    await hosts.end()
    expect(warnings).toEqual([])
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })

  async function connected(id: string) {
    const { socket } = await hosts.open(id)
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, 'web', signal) }
    return await connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }
  async function vsockAt(id: string) {
    const { configurations } = await (await hosts.open(id)).instances.get('web', ADMIN)
    const { plugged: _, ...device } =
      readMachine(JSON.parse(configurations?.current ?? '')).devices.vsock0 ?? {}
    return device
  }

  it('is saved without its vsock device, which comes back to its place', async () => {
    const connection = await connected('a')
    const counter = await podOf(agentOf(connection), ROOT).run('counter', ['sh', '-c', COUNT])
    const before = await counter.readUntil('\n5\n')
    connection.close()
    const { socket } = await hosts.open('a')
    expect(await microvm(['suspend', 'web', 'pod', '--socket', socket])).toMatchObject({ status: 0 })
    expect(await microvm(['resume', 'pod', 'web', '--socket', socket])).toMatchObject({ status: 0 })
    const there = await connected('a')
    expect(await vsockAt('a')).toEqual(place)
    const goesOn = new RemoteProcess(agentOf(there), 'counter')
    const after = await goesOn.readUntil('\n')
    await goesOn.signal(SIGTERM)
    const numbers = (before + after + (await goesOn.readAll())).trimEnd().split('\n')
    expect(numbers).toEqual(numbers.map((_, index) => `${index + 1}`))
    expect(await goesOn.wait()).toBe(7)
    there.close()
  })

  it('moves to another host and back without its vsock device, which comes back to its place', async () => {
    const connection = await connected('a')
    const { instances } = await hosts.open('a')
    const stream = { key: 'web', container: 'streamed', exec: '', stream: 'stdout' }
    const { port } = await instances.allocatePort(stream, ADMIN)
    const ports = { stdoutPort: port }
    await podOf(agentOf(connection), ROOT).run('streamed', ['sh', '-c', COUNT], { ports })
    connection.close()
    const linesAt = async (id: string) => {
      const { bytes } = await readRing(hosts.host(id).machines.folderOf(), port)
      return bytes.toString().split('\n').slice(0, -1)
    }
    for (const [from, to] of [
      ['a', 'b'],
      ['b', 'a'],
    ] as const) {
      await hosts.move(from, to)
      expect((await hosts.open(from)).instances.list(ADMIN)).toEqual([])
      expect(await vsockAt(to)).toEqual(place)
      const there = await connected(to)
      await agentOf(there).statsContainer({ containerId: 'streamed' })
      there.close()
      const { length } = await linesAt(to)
      await expect.poll(async () => (await linesAt(to)).length, { timeout: BOOT_MS }).toBeGreaterThan(length)
      const lines = await linesAt(to)
      expect(lines).toEqual(lines.map((_, index) => `${index + 1}`))
    }
  })
})
