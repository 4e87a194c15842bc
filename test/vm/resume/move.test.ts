import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import {
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  EnsureInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { podOf, RemoteProcess } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'
import { leftovers } from '../../support/wing/leftovers.ts'
import { MovingHosts } from '../../support/wing/moves/moving-hosts.ts'
import { ADMIN } from '../../support/wing/requests.ts'

const COUNT = "trap 'exit 7' TERM; i=0; while :; do echo line $i; i=$((i+1)); usleep 20000; done"
const ANSWER = 'while read line; do echo got $line; done'
const BOOT_MS = 120_000

describe.skipIf(cannotBoot() !== undefined)('a pod that moves to another host', { timeout: 240_000 }, () => {
  let hosts: MovingHosts

  beforeAll(async () => {
    hosts = new MovingHosts(['a', 'b'])
    const disk = join(temporaryFolder(), 'containers.img')
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    const backend = specKey('containers-file')
    const specification = specToProto(
      guestSpec({
        ...{ machine: 'pc-i440fx-7.2', memoryMib: 512, cpus: 1, append: [CRUN] },
        ...{ boot: await ensureImage({ progress }), containerRoot: undefined },
        link: {
          device: (slot, key) => ({ kind: 'vsock', slot, cid: 0, backend: key }),
          ...{ backend: { kind: 'vsock-daemon' }, commandLine: [] },
        },
        extra: {
          devices: {
            [specKey('containers')]: { kind: 'disk', slot: 5, serial: 'containers', backend },
          },
          backends: { [backend]: { kind: 'file', path: disk, access: 'read-write' } },
        },
      }),
    )
    const { instances } = await hosts.open('a')
    await hosts.open('b')
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, specification })
    await instances.ensure(request, ADMIN)
    await instances.changeState(ChangeStateRequest.fromPartial({ key: 'web', change: Change.RUN }), ADMIN)
    const signal = AbortSignal.timeout(BOOT_MS)
    const console = async () =>
      (await readRing(hosts.host('a').machines.folderOf(), 0)).bytes.toString('latin1')
    while (!(await console()).includes('"booted"')) await delay(50, undefined, { signal })
  }, BOOT_MS)

  afterAll(async () => {
    await hosts?.end()
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })

  const agentAt = async (id: string) => {
    const { socket } = await hosts.open(id)
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, 'web', signal) }
    return await connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }

  it('goes on there with every byte of its streams, its input, its terminals and its exits', async () => {
    const connection = await agentAt('a')
    const agent = agentOf(connection)
    const storages = [{ driver: 'blk', fstype: 'ext4', options: [], source: '05', mountPoint: ROOT }]
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'web', storages })
    const pod = podOf(agent, ROOT)
    const { instances } = await hosts.open('a')
    const stream = { key: 'web', container: 'count', exec: '', stream: 'stdout' }
    const { port } = await instances.allocatePort(stream, ADMIN)
    await pod.run('count', ['sh', '-c', COUNT], { ports: { stdoutPort: port } })
    const linesAt = async (id: string) =>
      (await readRing(hosts.host(id).machines.folderOf(), port)).bytes.toString().split('\n')
    await expect.poll(async () => (await linesAt('a')).length, { timeout: 30_000 }).toBeGreaterThan(20)
    const reader = await pod.run('reads', ['cat'])
    const shell = await pod.add('reads', 'shell', ['sh', '-c', ANSWER], { terminal: true })
    await shell.write('here\n')
    await shell.readUntil('got here')
    // Is read there.
    await reader.write('written here\n')
    const attached = (async () => {
      let position = 0n
      for await (const { data, moved } of instances.attach({ key: 'web', port, offset: 0n }, ADMIN)) {
        position += BigInt(data.length)
        if (moved !== undefined) return { moved, position }
      }
      throw new Error('the stream has ended')
    })()
    const answers = await hosts.move('a', 'b')
    expect(answers.map(({ step }) => step)).toContain('unplug')
    const moved = answers.at(-1)?.moved
    progress(
      `moved: guest stopped ${moved?.operation?.stoppedUs} us, callers waiting ${moved?.operation?.waitingUs} us`,
    )
    expect(moved?.operation?.stoppedUs).toBeGreaterThan(0n)
    // The memory is copied while the guest runs.
    expect(moved?.operation?.stoppedUs).toBeLessThan(5_000_000n)
    expect(moved?.operation?.waitingUs).toBeGreaterThan(moved?.operation?.stoppedUs ?? 0n)
    const told = await attached
    expect(told.moved.host).toBe('b')
    connection.close()
    const before = (await linesAt('b')).length
    await expect
      .poll(async () => (await linesAt('b')).length, { timeout: 30_000 })
      .toBeGreaterThan(before + 20)
    const lines = (await linesAt('b')).slice(0, -1)
    expect(lines).toEqual(lines.map((_, number) => `line ${number}`))
    expect((await readRing(hosts.host('b').machines.folderOf(), port)).end).toBeGreaterThan(told.position)
    const there = await agentAt('b')
    const again = agentOf(there)
    const readerThere = new RemoteProcess(again, 'reads')
    const shellThere = new RemoteProcess(again, 'reads', 'shell')
    await shellThere.write('there\n')
    expect(await shellThere.readUntil('got there')).not.toContain('got here')
    await readerThere.write('written there\n')
    await readerThere.closeStdin()
    expect((await readerThere.readAll()).toString()).toBe('written here\nwritten there\n')
    expect(await readerThere.wait()).toBe(0)
    await again.signalProcess({ containerId: 'count', execId: '', signal: 15 })
    expect((await again.waitProcess({ containerId: 'count', execId: '' })).status).toBe(7)
    there.close()
  })
})
