import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import {
  ChangeStateRequest_Change as Change,
  File_Access,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { askGuest } from '../../../src/host/migration/payloads/ask-guest.ts'
import { restoreInstance, saveInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { type Pod, podOf } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { bootInDaemon, type DaemonGuest } from '../../support/vm/daemon-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'

/** Writes files, and reads what the disk has of them. */
const WRITE = `set -e
for i in $(seq 24); do
  file=f$((i % 4))
  dd if=/dev/urandom of=/tmp/$file bs=64k count=16 2>&-
  sum=$(sha256sum < /tmp/$file)
  dd if=/tmp/$file of=/data/$file bs=64k conv=fsync 2>&-
  test "$(dd if=/data/$file bs=64k iflag=direct 2>&- | sha256sum)" = "$sum"
  echo $file $sum
done`

const DATA = '/run/kata-containers/sandbox/data'

/** Several times what a busy machine takes. The vsock daemon may go deaf when the guest stands still, for ever then. */
const TIMEOUT_MS = 90_000

describe.skipIf(cannotBoot() !== undefined)('a guest of the daemon', { timeout: TIMEOUT_MS }, () => {
  const folder = temporaryFolder()
  let disk = join(folder, 'data.img')
  /** Of the files on the disk. */
  const sums = new Map<string, string>()
  let guest: DaemonGuest
  let pod: Pod

  beforeAll(async () => {
    writeFileSync(disk, '')
    truncateSync(disk, 64 * 2 ** 20)
    execFileSync('/sbin/mkfs.ext4', ['-q', disk])
    const backend = specKey('data-file')
    guest = await bootInDaemon({
      ...{ folder, machine: 'pc-i440fx-7.2' },
      extra: {
        devices: { [specKey('data')]: { kind: 'disk', slot: 6, serial: 'data', backend } },
        backends: { [backend]: { kind: 'file', path: disk, access: 'read-write' } },
      },
    })
    const storage = { driver: 'blk', fstype: 'ext4', options: [] }
    const storages = [
      { ...storage, source: guest.rootSource, mountPoint: ROOT },
      { ...storage, source: '06', mountPoint: DATA },
    ]
    await guest.agent.createSandbox({ sandboxId: 'pod', hostname: 'web', storages })
    pod = podOf(guest.agent, ROOT)
  })
  afterAll(() => guest?.close())

  /** Goes on with a copy of the file; the original has other bytes from then on. */
  async function moveDisk(to: string): Promise<void> {
    const { instances } = guest.client
    await instances.changeState({ key: 'web', change: Change.PAUSE })
    copyFileSync(disk, to)
    const backend = { file: { path: to, access: File_Access.READ_WRITE } }
    await instances.replaceBackend({ key: 'web', backendKey: 'data-file', backend })
    writeFileSync(disk, 'of another disk')
    await instances.changeState({ key: 'web', change: Change.RUN })
    disk = to
  }

  it('writes on while its disk is moved to another file again and again', async () => {
    const writer = await pod.run('writer', ['sh', '-c', WRITE], { mounts: [bind(DATA, '/data')] })
    let [text, moves] = ['', 0]
    for (let chunk = await writer.read(); chunk.length > 0; chunk = await writer.read()) {
      text += chunk.toString()
      await moveDisk(join(folder, `data-${moves++}.img`))
    }
    expect([(await writer.readAll('stderr')).toString(), await writer.wait()], text).toEqual(['', 0])
    for (const [, name = '', sum = ''] of text.matchAll(/^(\w+) (\w+)/gm)) sums.set(name, sum)
    expect([sums.size, moves > 10]).toEqual([4, true])
    const { backends } = await guest.client.instances.getInstance({ key: 'web' })
    expect(backends['data-file']).toMatchObject({ lastError: '' })
  })

  it('has its disks saved by their keys, with their names and mounts in the guest', async () => {
    const { specification, properties } = await guest.client.instances.getInstance({ key: 'web' })
    const record = { ...InstanceRecord.create(), properties, specification, current: State.RUNNING }
    const told = await askGuest(guest.connection, { streams: [] }, neverAborted)
    const facts = {
      record,
      steps: [],
      streams: [],
      rings: [],
      compatibility: undefined,
      guest: told,
      savedMs: 0n,
    }
    const { devices, pod: saved } = restoreInstance(saveInstance(facts), 'state')
    expect(devices.disks).toMatchObject({
      disks: {
        data: { stage: 1, guestName: expect.stringMatching(/^vd[a-z]$/), mounts: [{ mountPoint: DATA }] },
      },
      reservations: { [DATA]: { stage: 1, disk: 'data', partition: 0, references: 1 } },
    })
    expect(saved).toMatchObject({ id: 'pod', containers: [{ id: 'writer', layers: [ROOT] }] })
  })

  it('is reached after callers have dialled it, and talked to it, while it stood still', async () => {
    const { instances } = guest.client
    const dialer = {
      connect: (signal: AbortSignal) => connectMachine(join(folder, 'state/admin.sock'), 'web', signal),
    }
    const stillFor = async (callers: () => Promise<unknown>) => {
      await instances.changeState({ key: 'web', change: Change.PAUSE })
      await callers()
      await instances.changeState({ key: 'web', change: Change.RUN })
      return await connectAgent(dialer, AbortSignal.timeout(60_000))
    }
    const dialled = await stillFor(async () => {
      for (let calls = 0; calls < 3; calls++)
        await expect(connectAgent(dialer, AbortSignal.timeout(300))).rejects.toThrow('timeout')
    })
    const talked = await stillFor(() =>
      expect(clientFor(HealthDefinition, dialled).check({}, { timeoutMs: 300 })).rejects.toThrow('timeout'),
    )
    dialled.close()
    // The guest got another vsock.
    pod = podOf(agentOf(talked), ROOT)
  })

  const read = (name: string) =>
    execFileSync('/sbin/debugfs', ['-R', `cat /${name}`, disk], { stdio: 'pipe', maxBuffer: 2 ** 24 })

  it('ends with its container and writes its disk when the power button is pressed', async () => {
    const script = 'trap "" TERM; echo written > /data/file; echo ready; sleep 1000'
    const init = await pod.run('running', ['sh', '-c', script], { mounts: [bind(DATA, '/data')] })
    await init.readUntil('ready')
    const begun = performance.now()
    expect(await guest.run('stop', 'web')).toMatchObject({ status: 0, stdout: 'web: stopped\n' })
    // The guest leaves its callers 2.5 s to read the last answers.
    expect(performance.now() - begun).toBeLessThan(15_000)
    const { state, reason } = await guest.client.instances.getInstance({ key: 'web' })
    expect({ state, reason }).toEqual({ state: State.STOPPED, reason: '' })
    expect(read('file').toString()).toBe('written\n')
    for (const [name, sum] of sums)
      expect(createHash('sha256').update(read(name)).digest('hex'), name).toBe(sum)
    // It was unmounted.
    expect(execFileSync('/sbin/dumpe2fs', ['-h', disk], { stdio: 'pipe' }).toString()).toMatch(
      /^Filesystem state: +clean$/m,
    )
  })
})
