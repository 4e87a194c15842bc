import { type ChildProcess, spawn } from 'node:child_process'
import { chmodSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { UIDS } from '../../../../src/host/instance/machine/uids.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { TestVolumes } from './test-volumes.ts'

/** A server has started again within this time, on a busy machine too. */
const RECONNECT_S = 6
const EIO = 'Input/output error'
const SIZE = 1 << 20

describe('the volumes of a host', () => {
  let host: TestVolumes
  const children: ChildProcess[] = []
  const clients: QmpClient[] = []

  beforeEach(async () => {
    host = await TestVolumes.open(temporaryFolder())
  })
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close()
    for (const child of children.splice(0)) await endChild(child, 'SIGKILL')
    await host.close()
  })

  /** A QEMU with the disk. Returns what writes all of it, and resolves with QEMU's error or undefined. */
  async function qemuWith({ reach: _, ...client }: Awaited<ReturnType<TestVolumes['fence']>>) {
    const socket = join(host.folder, `qemu${clients.length}`)
    const control = [
      '-chardev',
      `socket,id=q,path=${socket},server=on,wait=off`,
      '-mon',
      'chardev=q,mode=control',
    ]
    const disk = { ...client, 'node-name': 'disk', 'reconnect-delay': RECONNECT_S }
    const source = { driver: 'null-co', 'node-name': 'source', size: SIZE, 'read-zeroes': true }
    const argv = [
      ...['-M', 'none', '-nodefaults', '-display', 'none', ...control],
      ...[source, disk].flatMap((each) => ['-blockdev', JSON.stringify(each)]),
    ]
    children.push(spawn('qemu-system-x86_64', argv, { stdio: 'ignore' }))
    const qmp = await connectQmp(socket, AbortSignal.timeout(20_000))
    clients.push(qmp)
    let jobs = 0
    return async (): Promise<unknown> => {
      const id = `write${jobs++}`
      const signal = AbortSignal.timeout(30_000)
      const ended = qmp.event(
        ({ name, data }) => name === 'BLOCK_JOB_COMPLETED' && data.device === id,
        signal,
      )
      const job = { 'job-id': id, device: 'source', target: 'disk', sync: 'full' }
      await qmp.command({ execute: 'blockdev-backup', arguments: job }, signal)
      return (await ended).data.error
    }
  }

  it('fail for a writer of an earlier epoch, whose server was killed and started again before', async () => {
    const old = await qemuWith(await host.fence())
    expect(await old()).toBeUndefined()
    await host.killServer()
    // It waits for the next server.
    expect(await old()).toBeUndefined()
    host.run = 2n
    const began = performance.now()
    const present = await qemuWith(await host.fence())
    expect(performance.now() - began).toBeLessThan(5000)
    expect(await old()).toBe(EIO)
    expect(await present()).toBeUndefined()
    expect(await old()).toBe(EIO)
    await expect(host.fence(1n)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'volume root of web: a/i-web does not run the machine, says the controller',
    })
    expect(await present()).toBeUndefined()
  })

  it('are served by the next daemon, until the controllers do not know the VM any more', async () => {
    const write = await qemuWith(await host.fence())
    await host.openAgain()
    await host.killServer()
    expect(await write()).toBeUndefined()
    host.isThere = false
    await host.openAgain()
    await expect.poll(() => host.holders()).toEqual([])
    expect(await write()).toBe(EIO)
  })

  it('are not served on for a daemon that does not know them', async () => {
    const write = await qemuWith(await host.fence())
    expect(await write()).toBeUndefined()
    await host.openAnew()
    expect(host.holders()).toEqual([])
    expect(await write()).toBe(EIO)
  })

  it('give a user the socket that was made, and nothing that is there in its place', async () => {
    host.uid = UIDS.first
    await host.fence()
    expect(statSync(host.socket()).uid).toBe(UIDS.first)
    const secret = join(host.folder, 'secret')
    writeFileSync(secret, '')
    host.onStart = () => {
      rmSync(host.socket())
      symlinkSync(secret, host.socket())
    }
    await expect(host.fence()).rejects.toThrow('want the socket that was made there')
    expect(statSync(secret).uid).toBe(0)
  })

  it('are forgotten when their server does not start', async () => {
    rmSync(host.path)
    await expect(host.fence()).rejects.toThrow('ENOENT')
    expect(host.holders()).toEqual([])
  })

  it('are for the host of the writer alone', async () => {
    host.host = 'b'
    const { reach } = await host.fence()
    const write = writerOf(reach, 'b')
    expect(reach.address).toBe('localhost')
    expect(await write()).toBe('wrote 4096')
    await host.volumes.release('')
    expect(await write()).toBe('wrote 4096')
    expect(await writerOf(reach, 'c')()).toMatch(/can't open/)
    host.host = 'a'
    host.run = 2n
    const own = await qemuWith(await host.fence())
    expect(await write()).toBe(`write failed: ${EIO}`)
    expect(await own()).toBeUndefined()
    host.host = 'c'
    host.run = 3n
    await expect(host.fence()).rejects.toThrow('the configuration of host a does not name host c for it')
    host.folders = { [join(host.folder, 'other')]: ['c'] }
    await host.openAgain()
    await expect(host.fence()).rejects.toThrow(
      /not below a folder of host.volumes in the configuration of host a/,
    )
    expect(await own()).toBeUndefined()
  })

  it('are served on only while they are offered, from where the administrator alone can replace them', async () => {
    host.host = 'b'
    const write = writerOf((await host.fence()).reach, 'b')
    expect(await write()).toBe('wrote 4096')
    const { folders } = host
    host.folders = {}
    await host.openAgain()
    await expect.poll(write).toBe(`write failed: ${EIO}`)
    host.folders = folders
    await host.openAgain()
    chmodSync(dirname(host.path), 0o777)
    await expect(host.fence()).rejects.toThrow('others than the administrator can replace it')
  })

  /** Returns what writes 4 KiB once, and resolves with what qemu-io says of that. */
  function writerOf({ address, name, port }: { address: string; name: string; port: number }, peer: string) {
    const credentials = `tls-creds-x509,id=tls,endpoint=client,verify-peer=on,dir=${host.credentials(peer)}`
    const server = `driver=nbd,server.type=inet,server.host=${address},server.port=${port}`
    const image = `${server},export=${name},tls-creds=tls,tls-hostname=a`
    const words = ['--object', credentials, '--image-opts', image].map((word) => `'${word}'`).join(' ')
    const child = spawn('sh', ['-c', `exec qemu-io -t none ${words} 2>&1`])
    children.push(child)
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
    return async () => {
      child.stdin.on('error', () => {}).write('write -P 7 0 4096\n')
      for (;;) {
        const { value, done } = await lines.next()
        if (done) return 'ended'
        const said = /wrote 4096|write failed.*|can't open.*/.exec(value)?.[0]
        if (said !== undefined) return said
      }
    }
  }
})
