import { type ChildProcess, spawn } from 'node:child_process'
import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { qemuStorageFence, type StorageFence } from '../../../../src/host/instance/leases/storage-fence.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const FAILED = 'write failed: Input/output error'

describe('the fence of a qemu-storage-daemon', () => {
  let folder: string
  let daemon: ChildProcess
  let qmp: QmpClient
  let storage: StorageFence
  const writers: ChildProcess[] = []

  beforeEach(async () => {
    folder = temporaryFolder()
    for (const name of ['one', 'two']) {
      writeFileSync(join(folder, name), '')
      truncateSync(join(folder, name), 1 << 20)
    }
    const node = (name: string) => [
      '--blockdev',
      `driver=file,node-name=${name},filename=${join(folder, name)}`,
    ]
    const nbd = ['--nbd-server', `addr.type=unix,addr.path=${join(folder, 'nbd')}`]
    const control = ['--chardev', `socket,id=q,path=${join(folder, 'qmp')},server=on,wait=off`]
    const argv = [...node('one'), ...node('two'), ...nbd, ...control, '--monitor', 'chardev=q']
    daemon = spawn('qemu-storage-daemon', argv, { stdio: 'inherit' })
    qmp = await connectQmp(join(folder, 'qmp'), AbortSignal.timeout(20_000))
    storage = qemuStorageFence(qmp)
  })
  afterEach(async () => {
    qmp.close()
    for (const child of [...writers.splice(0), daemon]) await endChild(child, 'SIGKILL')
  })

  const fence = (volume: string, epoch: bigint) => storage.fence(volume, epoch, neverAborted)

  /** Returns what writes 4 KiB once, and resolves with what qemu-io says of that. */
  function writerOf(name: string): () => Promise<string> {
    const url = `nbd+unix:///${name}?socket=${join(folder, 'nbd')}`
    const child = spawn('sh', ['-c', `exec qemu-io -f raw -t none '${url}' 2>&1`])
    writers.push(child)
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
    return async () => {
      child.stdin.write('write -P 7 0 4096\n')
      for (;;) {
        const { value, done } = await lines.next()
        if (done) return 'ended'
        const said = /wrote 4096|write failed.*|can't open.*/.exec(value)?.[0]
        if (said !== undefined) return said
      }
    }
  }

  it('ends the writer of the epoch before, and no other', async () => {
    const first = await fence('one', 1n)
    const other = writerOf(await fence('two', 7n))
    const old = writerOf(first)
    expect(await old()).toBe('wrote 4096')
    const began = performance.now()
    const second = await fence('one', 2n)
    expect(performance.now() - began).toBeLessThan(2000)
    expect(await old()).toBe(FAILED)
    expect(await writerOf(second)()).toBe('wrote 4096')
    expect(await old()).toBe(FAILED)
    expect(await writerOf(first)()).toMatch(/can't open/)
    expect(await other()).toBe('wrote 4096')
  })

  it('lets a writer go on when its epoch is fenced again, and knows no earlier one', async () => {
    const present = writerOf(await fence('one', 9n))
    expect(await present()).toBe('wrote 4096')
    expect(await fence('one', 9n)).toBe('one/9')
    expect(await present()).toBe('wrote 4096')
    await expect(fence('one', 8n)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'volume one: epoch 9 has it, want no earlier one than that',
    })
    expect(await present()).toBe('wrote 4096')
  })

  it.each([
    ['', 1n, 'volume ""'],
    ['../one', 1n, 'volume "../one"'],
    ['one/2', 1n, 'volume "one/2"'],
    ['x'.repeat(32), 1n, 'want a letter'],
    ['one', 0n, 'epoch 0, want 1'],
    ['one', 2n ** 63n, 'want 1 to 2^63 - 1'],
  ])('refuses %j of epoch %s', async (volume, epoch, text) => {
    await expect(fence(volume, epoch)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(text),
    })
  })

  it('tells that it has no such volume, in the words of QEMU', async () => {
    await expect(fence('three', 1n)).rejects.toThrow("nor node-name='three'")
  })
})
