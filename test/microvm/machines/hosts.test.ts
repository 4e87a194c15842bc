import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type RunningDaemon, runMockDaemon } from '../../support/host-wing/running-daemon.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const BOARD = { machine: 'pc-q35-7.2', memory_mib: 256, cpus: 1, kernel: '/boot/vmlinuz' }

const ON_PASST = {
  devices: { eth0: { backend: 'net', slot: 3, nic: { mac: '52:54:00:00:00:01' } } },
  backends: { net: { passt: {} } },
}

describe('the commands about other hosts', () => {
  let daemon: RunningDaemon
  let env: Readonly<Record<string, string>>
  beforeEach(async () => {
    daemon = await runMockDaemon()
    env = { MICROVM_SOCKET: daemon.daemon.socket }
  })
  afterEach(() => daemon.close())

  const run = (...words: readonly string[]) => microvm(words, { env })

  async function ensure(key: string, more = {}): Promise<void> {
    const file = join(temporaryFolder(), `${key}.json`)
    writeFileSync(file, JSON.stringify({ properties: { key }, specification: { board: BOARD, ...more } }))
    expect(await run('ensure', file)).toMatchObject({ status: 0 })
  }

  it('list the hosts, and tell which takes no machines', async () => {
    expect((await run('hosts')).stdout).toMatch(
      /^HOST .*\na \(this\) +a:7443 .* machines\nb +b:7443 .* machines\n$/,
    )
    expect(await run('drain')).toMatchObject({ status: 0, stdout: '' })
    expect((await run('hosts')).stdout).toMatch(/a \(this\) .* none\n/)
    expect(await run('drain', '--end')).toMatchObject({
      status: 0,
      stdout: 'this host takes machines again\n',
    })
    expect(JSON.parse((await run('hosts', '--json')).stdout)).toMatchObject({
      hosts: [{ id: 'a' }, { id: 'b' }],
    })
  })

  it('move a machine, step by step', async () => {
    await ensure('web')
    expect(await run('migrate', 'web', '--dry-run')).toMatchObject({
      status: 0,
      stdout: 'web: would move to b: 256 MiB of memory, 0 B of disks, in about 2s\n',
    })
    expect(JSON.parse((await run('migrate', 'web', '--dry-run', '--json')).stdout)).toMatchObject({
      forecast: { host: 'b' },
    })
    expect(await run('migrate', 'web', '--to', 'b')).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(
        /^web: runs on b \(guest stopped 0.0 ms, callers waiting 0.0 ms\)\nmove 1970-.*: 2.0 ms\n.*\n.* 1.0 ms +memory +done\n/,
      ),
      stderr: expect.stringContaining('web: memory 256 MiB of 256 MiB'),
    })
    expect(await run('inspect', 'web')).toMatchObject({ status: 1 })
  })

  it('say why a machine does not move', async () => {
    await ensure('web')
    expect(await run('migrate', 'web', '--to', 'c')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('FAILED_PRECONDITION: target: host c: is not there'),
    })
    expect(await run('migrate', 'none')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('NOT_FOUND'),
    })
  })

  it('tell beforehand what would not move, and why', async () => {
    await ensure('web', ON_PASST)
    const obstacle = 'backends.net: its connections would break: passt has them in its memory'
    expect(await run('migrate', 'web', '--dry-run')).toMatchObject({ status: 1, stdout: `${obstacle}\n` })
    const { status, stdout } = await run('migrate', 'web', '--dry-run', '--json')
    expect(status).toBe(1)
    expect(JSON.parse(stdout)).toMatchObject({ forecast: { obstacles: [obstacle] } })
    expect(await run('migrate', 'web')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining(`FAILED_PRECONDITION: ${obstacle}`),
    })
    expect(await run('inspect', 'web')).toMatchObject({ status: 0 })
  })

  it('move all machines that can, and name the others', async () => {
    await ensure('web')
    await ensure('db')
    const { status, stderr } = await run('drain', '--to', 'c')
    expect(status).toBe(1)
    expect(stderr).toContain('db: stays: target: host c: is not there')
    expect(stderr).toContain('web: stays: target: host c: is not there')
    const drained = await run('drain')
    expect(drained).toMatchObject({ status: 0, stdout: expect.stringContaining('web: runs on b') })
    expect(drained.stdout).toContain('db: runs on b')
  })
})

describe('./microvm controller', () => {
  it.each([
    [[], 'controller: no --etcd ENDPOINT, see ./microvm controller --help'],
    [['--etcd', 'nowhere'], '--etcd nowhere: want HOST:PORT, such as 192.0.2.9:7440'],
    [
      ['--etcd', 'https://a:2379', '--etcd', 'http://b:2379'],
      '--etcd: some with https:// and some without, want all alike',
    ],
    [['--etcd', 'https://a:2379'], '--etcd https://…: no --etcd-ca FILE, see ./microvm controller --help'],
    [
      ['--etcd', 'a:2379', '--etcd-ca', '/ca'],
      '--etcd-ca, --etcd-cert, --etcd-key: for https:// alone, want --etcd https://HOST:PORT',
    ],
    [
      ['--etcd', 'https://a:2379', '--etcd-ca', '/ca', '--etcd-cert', '/c'],
      '--etcd-cert and --etcd-key: one without the other, want both',
    ],
    [['--etcd', 'a:2379'], 'controller: no --listen ADDRESS, see ./microvm controller --help'],
    [['--etcd', 'a:2379', '--listen', 'x'], '--listen x: want HOST:PORT, such as 192.0.2.9:7440'],
  ])('names what is wrong: %j', async (words, text) => {
    const { status, stderr } = await microvm(['controller', ...words], { env: {} })
    expect(status).toBe(2)
    expect(stderr).toContain(text)
  })
})
