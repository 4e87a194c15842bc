import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import { ChangeStateRequest_Change as Change } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../../src/host/instance/registry/registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BLOCK } from '../../../support/wing/layer-bytes.ts'
import { LayeredDisks } from '../../../support/wing/layered-disks.ts'

describe('a full disk', () => {
  // Not among the temporary folders: those of dead runs are swept, which a mount would prevent.
  let small: string
  beforeEach(() => {
    small = mkdtempSync('/run/full-')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m,mode=755', 'tmpfs', small])
  })
  afterEach(() => {
    execFileSync('umount', ['-l', small])
    rmdirSync(small)
  })

  function fill(): () => void {
    const filler = join(small, 'filler')
    const { bavail, bsize } = statfsSync(small)
    writeFileSync(filler, Buffer.alloc(bavail * bsize - BLOCK, 1))
    return () => rmSync(filler)
  }

  it('of the state folder refuses a snapshot and leaves nothing', async () => {
    const machine = new LayeredDisks(small, temporaryFolder())
    await machine.make()
    const makeRoom = fill()
    await expect(machine.snapshot('one')).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: `${join(machine.own, 'disks/1.qcow2')}: ENOSPC`,
    })
    expect([await machine.layers(), machine.files]).toEqual([[], []])
    makeRoom()
    await machine.snapshot('one')
    await machine.write('root', [0, 1])
    const left = await machine.remove()
    expect(left.filter((line) => !line.startsWith(`tmpfs ${small} `))).toEqual([])
  })

  it('below a layer refuses a merge, after which all bytes are there', async () => {
    const machine = new LayeredDisks(temporaryFolder(), small)
    await machine.make()
    await machine.write('root', [0, 1])
    await machine.snapshot('one', 'root')
    await machine.write('root', [0, 2], [1, 2], [2, 2], [3, 2])
    await machine.change(Change.RUN)
    const makeRoom = fill()
    await expect(machine.rm('one')).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'backends.root-file: layer 1: not merged: No space left on device',
    })
    expect(machine.files).toEqual(['1.qcow2'])
    makeRoom()
    await machine.write('root', [1, 3])
    await machine.rm('')
    await machine.stop()
    expect([machine.files, await machine.bytes('root')]).toEqual([[], [2, 3, 2, 2]])
    expect(await machine.remove()).toEqual([])
  })
})

/** The calls with snapshots, each with what it needs before. */
const CALLS: Readonly<Record<string, (machine: LayeredDisks) => Promise<unknown>>> = {
  snapshot: (machine) => machine.snapshot('two'),
  merge: (machine) => machine.rm(''),
  stopped: async (machine) => {
    await machine.stop()
    return await machine.rm('')
  },
  revert: async (machine) => {
    await machine.stop()
    return await machine.revert('one')
  },
}

/** `npm run instances` takes all commits, and this group a few. */
const ALL = process.env[INSTANCES.lives] !== undefined
const STEP = ALL ? 1 : 3

describe.each(ALL ? Object.keys(CALLS) : ['snapshot', 'merge'])(
  'a registry that is full in the call %s',
  (name) => {
    it('loses no byte at any of its commits', async () => {
      const machine = new LayeredDisks()
      const registry = fullRegistry()
      await machine.make(registry)
      await machine.change(Change.RUN)
      for (let commit = 1; ; commit += STEP) {
        await machine.change(Change.RUN)
        await machine.rm('')
        await machine.write('root', [0, 1])
        await machine.snapshot('one')
        await machine.write('root', [0, 2], [1, commit])
        registry.failAt(commit)
        const error = await CALLS[name]?.(machine).then(
          () => undefined,
          (failure) => failure,
        )
        const hasFailed = registry.hasFailed()
        if (error !== undefined) expect(error).toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
        if (error !== undefined) await CALLS[name]?.(machine)
        // Another daemon knows what this one knows.
        await machine.leave()
        await machine.stop()
        expect(await machine.bytes('root', 2), `commit ${commit}`).toEqual(
          name === 'revert' ? [1, 0] : [2, commit],
        )
        if (!hasFailed) break
      }
      expect(await machine.remove()).toEqual([])
    })
  },
)

function fullRegistry(): Registry & { failAt(commit: number): void; hasFailed(): boolean } {
  const real = memoryRegistry()
  let left = 0
  return {
    load: (table) => real.load(table),
    close: () => real.close(),
    commit: async (changes, options) => {
      if (left > 0) {
        left -= 1
        if (left === 0) throw new AgentError('RESOURCE_EXHAUSTED', 'registry: full')
      }
      await real.commit(changes, options)
    },
    failAt: (commit) => {
      left = commit
    },
    hasFailed: () => {
      const has = left === 0
      left = 0
      return has
    },
  }
}
