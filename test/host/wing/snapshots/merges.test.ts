import { readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { BLOCK } from '../../../support/wing/layer-bytes.ts'
import { LayeredDisks } from '../../../support/wing/layered-disks.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const bytesOfFile = (path: string) => [0, 1, 2, 3].map((block) => readFileSync(path)[block * BLOCK])

describe('the layers of a real machine', () => {
  it.each(['paused', 'running'] as const)('are merged while the machine is %s', async (state) => {
    const machine = new LayeredDisks()
    await machine.make()
    for (const byte of [1, 2, 3]) {
      await machine.write('root', [0, byte], [byte, byte])
      await machine.snapshot(`s${byte}`, 'root')
    }
    await machine.write('root', [0, 4])
    if (state === 'running') await machine.change(Change.RUN)
    // A layer in the middle, then the disk's own file, then the one that is written to.
    expect(await machine.rm('s2')).toEqual({ stillUs: 0n })
    expect((await machine.layers()).map(({ id, parent }) => [id, parent])).toEqual([
      [1, 0],
      [3, 1],
    ])
    expect(machine.bytesOf('root', 1, await machine.layers())).toEqual([3, 1, 2, 3])
    await machine.rm('s1')
    expect((await machine.layers()).map(({ id, parent }) => [id, parent])).toEqual([[3, 0]])
    await machine.write('root', [1, 5])
    const { stillUs } = await machine.rm('s3')
    expect(stillUs > 0n).toBe(state === 'running')
    expect([await machine.layers(), machine.files]).toEqual([[], []])
    const backend = async () => (await (await machine.open()).get('web', ADMIN)).backends['root-file']
    expect(await backend()).toMatchObject({ node: 'name-root-file', locks: ['write'], jobs: [] })
    await machine.write('root', [2, 6])
    expect(await (await machine.open()).get('web', ADMIN)).toMatchObject({
      state: state === 'running' ? State.RUNNING : State.PAUSED,
    })
    await machine.stop()
    expect(bytesOfFile(join(machine.disks, 'root'))).toEqual([4, 5, 6, 3])
    expect(await machine.remove()).toEqual([])
  })

  it('have the job of their merge in the status of their disk alone', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    await machine.write('root', [0, 1])
    await machine.snapshot('one')
    await machine.write('root', [0, 2])
    const jobs = async () => {
      const { backends } = await (await machine.open()).get('web', ADMIN)
      return [backends['root-file']?.jobs, backends['data-file']?.jobs]
    }
    const { execute } = QmpClient.prototype
    const seen: unknown[] = []
    const spy = vi.spyOn(QmpClient.prototype, 'execute').mockImplementation(async function (
      this: QmpClient,
      ...words
    ) {
      if (words[0] === 'job-complete') seen.push(await jobs())
      return execute.apply(this, words)
    })
    await machine.rm('one').finally(() => spy.mockRestore())
    // One disk's layer is merged after the other's.
    expect(seen).toEqual([
      [['commit'], []],
      [[], ['commit']],
    ])
    expect(await jobs()).toEqual([[], []])
    expect(await machine.remove()).toEqual([])
  })

  it('are merged while the machine is stopped, also those beside the present ones', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    for (const byte of [1, 2, 3]) {
      await machine.write('data', [0, byte], [byte, byte])
      await machine.snapshot(`s${byte}`)
    }
    await machine.stop()
    await machine.revert('s1')
    await machine.rm('s2')
    expect(await (await machine.open()).get('web', ADMIN)).toMatchObject({ state: State.STOPPED, qemuPid: 0 })
    const layers = await machine.layers()
    const third = (await (await machine.open()).snapshots('web', ADMIN)).snapshots[1]?.disks[1]?.layer ?? 0
    expect(machine.bytesOf('data', third, layers)).toEqual([3, 1, 2, 3])
    expect(await machine.bytes('data')).toEqual([1, 1, 0, 0])
    await machine.revert('s3')
    await machine.rm('')
    expect([await machine.layers(), machine.files]).toEqual([[], []])
    expect(bytesOfFile(join(machine.disks, 'data'))).toEqual([3, 1, 2, 3])
    await machine.change(Change.RUN)
    expect(await machine.remove()).toEqual([])
  })

  it('are merged beside the present ones while the machine runs', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    for (const byte of [1, 2, 3]) {
      await machine.write('data', [0, byte], [byte, byte])
      await machine.snapshot(`s${byte}`)
    }
    await machine.stop()
    await machine.revert('s1')
    await machine.change(Change.RUN)
    await machine.rm('s2')
    const third = (await (await machine.open()).snapshots('web', ADMIN)).snapshots[1]?.disks[1]?.layer ?? 0
    expect(machine.bytesOf('data', third, await machine.layers())).toEqual([3, 1, 2, 3])
    await machine.stop()
    await machine.revert('s3')
    expect(await machine.bytes('data')).toEqual([3, 1, 2, 3])
    expect(await machine.remove()).toEqual([])
  })

  it('that are gone stop a merge, and those of an unfinished one are merged at the next', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    await machine.write('root', [0, 1])
    await machine.snapshot('one', 'root')
    await machine.write('root', [0, 2])
    await machine.stop()
    const path = join(machine.disks, 'root')
    const { size } = statSync(path)
    rmSync(path)
    await expect(machine.rm('one')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${path}: ENOENT`,
    })
    expect(size).toBe(16 * 2 ** 20)
    expect(await machine.bytes('root', 1)).toEqual([2])
    expect(await machine.remove()).toEqual([])
  })
})
